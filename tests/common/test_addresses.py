import pytest

from common.addresses import check_address
from common.errors import SettingsError


@pytest.mark.parametrize("address", ["localhost:5555", "192.168.1.7:1", "gpu-3.cluster.example:65535", "a_b:80"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    check_address("--server", address)


@pytest.mark.parametrize(
    "address",
    [
        "", "localhost", "localhost:", ":5555", "localhost:0", "localhost:65536", "localhost:123456", "localhost:http",
        "localhost:-1", "tcp://localhost:5555", "a b:5555", "*:5555", "a:b:5555", "localhost:5555\n", "localhost:٣",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_flag_and_an_example(address: str) -> None:
    with pytest.raises(SettingsError, match=r"(?s)--server .*must be HOST:PORT, for example"):
        check_address("--server", address)
