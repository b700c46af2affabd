"""The address that a server names for its workers, and its connections to other servers."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import zmq

from ps_common.protocol.messages import StatusRequest
from ps_common.protocol.names import join_address
from ps_common.protocol.wire import read_to_server
from ps_common.sockets.zmq_sockets import bind
from ps_server.shell import server_sockets
from ps_server.shell.server_sockets import OtherServers, own_host, router_socket
from ps_server.state.effects import SendToServer
from tests.ps_common.sockets.test_zmq_connect import needs_ipv6

SECONDS = 10.0


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_a_server_on_every_interface_names_its_address_towards_other_networks(everywhere: str) -> None:
    told = own_host("*", everywhere)
    assert told == socket.gethostname() or socket.getaddrinfo(told, None)
    assert told not in server_sockets.EVERY_INTERFACE


REQUEST = StatusRequest(request=7)


class Names:
    """A name server that counts its requests and knows no name before `known`; then what the system knows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = False
        self.requests = 0
        self.answers = threading.Event()
        self.answers.set()
        self._resolved = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.addresses)

    def addresses(self, *name: Any, **options: Any) -> list[Any]:
        self.requests += 1
        assert self.answers.wait(SECONDS)
        if not self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._resolved(*name, **options)


@pytest.fixture
def others() -> Iterator[OtherServers]:
    context = zmq.Context()
    with closing(OtherServers(context, zmq.Poller(), None)) as others:
        yield others
    context.destroy(linger=0)


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_server_whose_name_has_an_address_later_is_reached_by_ipv4_or_ipv6(
    others: OtherServers, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    names = Names(monkeypatch)
    monkeypatch.setattr(server_sockets, "LOOKUP_SECONDS", 0.0)
    with zmq.Context() as context, router_socket(context) as listener:
        names.known = True
        _, port = bind(listener, host, 0)
        names.known = False
        request = SendToServer(join_address(host, port), REQUEST, "--standby-of")
        others.send(request)
        assert list(others.received()) == []
        assert not listener.poll(0)
        names.known = True
        deadline = time.monotonic() + SECONDS
        while not listener.poll(10):
            assert time.monotonic() < deadline, "nothing arrives"
            others.send(request)
        message, _ = read_to_server(listener.recv_multipart()[1:])
        assert message == REQUEST


def test_a_name_without_an_address_is_named_once_and_a_slow_name_server_keeps_nobody_waiting(
    others: OtherServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = Names(monkeypatch)
    monkeypatch.setattr(server_sockets, "LOOKUP_SECONDS", 0.0)
    request = SendToServer("ps-0.ps:5555", REQUEST, "--shards")
    others.send(request)
    while names.requests < 3:
        others.send(request)
    names.answers.clear()
    for _ in range(100):
        others.send(request)
    names.answers.set()
    told = "--shards ps-0.ps:5555: the name ps-0.ps has no address here: Name or service not known; still trying"
    assert caplog.messages == [told]
