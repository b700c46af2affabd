"""Addresses and names of both families, and of none: a listening server is reached."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from ps_common.errors import ServerUnreachable
from ps_common.protocol.messages import StatusRequest
from ps_common.protocol.names import join_address
from ps_common.sockets.request import ask
from ps_common.sockets.zmq_sockets import bind, connect, look_up

PATIENCE_MILLISECONDS = 10_000


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def is_heard(context: zmq.Context[Any], listener: zmq.Socket[Any], address: str) -> bool:
    """Whether what is sent to the address arrives."""
    with context.socket(zmq.PUSH) as sender:
        connect(sender, address)
        sender.send(address.encode())
        return bool(listener.poll(PATIENCE_MILLISECONDS)) and listener.recv() == address.encode()


@pytest.mark.parametrize(
    ("host", "reached_at"),
    [
        ("127.0.0.1", ["127.0.0.1", "localhost"]),
        ("localhost", ["127.0.0.1", "localhost"]),
        ("0.0.0.0", ["127.0.0.1", "localhost"]),
        ("*", ["127.0.0.1", "localhost"]),
        ("lo", ["127.0.0.1"]),
        pytest.param("::1", ["::1"], marks=needs_ipv6),
        pytest.param("[::1]", ["::1"], marks=needs_ipv6),
        pytest.param("::", ["::1", "127.0.0.1", "localhost"], marks=needs_ipv6),
    ],
)
def test_a_listening_server_is_reached(context: zmq.Context[Any], host: str, reached_at: list[str]) -> None:
    with context.socket(zmq.PULL) as listener:
        bound, port = bind(listener, host, 0)
        assert port > 0
        assert bound in ("127.0.0.1", "0.0.0.0", "::1", "::")
        for there in reached_at:
            assert is_heard(context, listener, join_address(there, port)), there


def resolve_to(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, str]) -> None:
    def resolved(host: str, port: Any, **_: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (address, 0)) for family, address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.mark.parametrize(
    ("found", "is_ipv6"),
    [
        ([(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")], 0),
        ([(socket.AF_INET, "127.0.0.1")], 0),
        ([(socket.AF_INET6, "::1")], 1),
    ],
)
def test_a_name_with_both_kinds_of_addresses_is_taken_for_ipv4(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch, found: list[tuple[int, str]], is_ipv6: int
) -> None:
    resolve_to(monkeypatch, *found)
    with context.socket(zmq.PUSH) as sender:
        connect(sender, "localhost:9")
        assert sender.getsockopt(zmq.IPV6) == is_ipv6


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 64, "x" * 300])
def test_the_error_names_a_host_without_an_address_and_the_client_keeps_trying(
    context: zmq.Context[Any], name: str
) -> None:
    _, why = look_up(f"{name}:5555")
    assert why.startswith(f"the name {name} has no address here: ")
    with context.socket(zmq.PUSH) as sender:
        connect(sender, f"{name}:5555")
    with pytest.raises(ServerUnreachable, match=r"has no address here"):
        ask(f"{name}:5555", StatusRequest(request=1), timeout_seconds=60)
