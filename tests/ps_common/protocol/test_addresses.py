import pytest

from ps_common.errors import SettingsError
from ps_common.protocol.names import check_address, is_loopback, join_address, split_address
from tests.rows import row


def test_an_address_is_a_host_and_a_port() -> None:
    for address, host, port in [
        ("localhost:5555", "localhost", 5555),
        ("192.168.1.7:1", "192.168.1.7", 1),
        ("gpu-3.cluster.example:65535", "gpu-3.cluster.example", 65535),
        ("a_b:80", "a_b", 80),
        ("[::1]:5555", "::1", 5555),
        ("[2001:db8::7:1]:5555", "2001:db8::7:1", 5555),
        ("[::ffff:10.0.0.1]:5", "::ffff:10.0.0.1", 5),
        ("[fe80::1%eth0]:5555", "fe80::1%eth0", 5555),
    ]:
        with row(address, host, port):
            check_address("--server", address)
            assert split_address(address) == (host, port)
            assert join_address(host, port) == address


def test_a_loopback_address_is_reached_from_here_alone() -> None:
    for host, is_here in [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("192.168.1.7", False),
        ("fd00::1", False),
        ("example.org", False),
        ("127.example.org", False),
    ]:
        with row(host, is_here):
            assert is_loopback(host) == is_here


def test_anything_else_is_refused_with_the_flag_and_an_example() -> None:
    for address in [
        "",
        "localhost",
        "localhost:",
        ":5555",
        "localhost:0",
        "localhost:65536",
        "localhost:123456",
        "localhost:http",
        "localhost:-1",
        "tcp://localhost:5555",
        "a b:5555",
        "*:5555",
        "a:b:5555",
        "localhost:5555\n",
        "localhost:٣",
        "::1:5555",
        "[::1]",
        "[::1]:0",
        "[::1]5555",
        "[::1]:65536",
        "[10.0.0.1]:5",
        "[::g]:5",
        "[]:5",
        "[a]:5",
        "[::1%]:5",
        "[1::2::3]:5",
        "fe80::1%eth0:5",
    ]:
        with row(address), pytest.raises(SettingsError, match=r"(?s)--server .*must be HOST:PORT, for example"):
            check_address("--server", address)
