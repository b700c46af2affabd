"""The address that a server names for its workers."""

import socket
from typing import Any

import pytest

from ps_server.shell import server_sockets
from ps_server.shell.server_sockets import own_host
from tests.rows import row


def test_a_server_on_one_address_names_that_address() -> None:
    for typed, bound, told in [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("::1", "::1", "::1"),
        ("[::1]", "::1", "::1"),
        ("localhost", "127.0.0.1", "localhost"),
        ("lo", "127.0.0.1", "127.0.0.1"),
    ]:
        with row(typed, bound, told):
            assert own_host(typed, bound) == told


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_a_server_on_every_interface_names_its_address_towards_other_networks(everywhere: str) -> None:
    told = own_host("*", everywhere)
    assert told == socket.gethostname() or socket.getaddrinfo(told, None)
    assert told not in server_sockets.EVERY_INTERFACE


def test_a_machine_without_a_network_gives_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(server_sockets.socket.socket, "connect", unreachable)
    assert own_host("0.0.0.0", "0.0.0.0") == socket.gethostname()
