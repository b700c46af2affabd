"""HOST:PORT, as users type it: the host is a name, an IPv4 address, or an IPv6 address in brackets."""

import ipaddress
import re

from ps_common.errors import SettingsError

NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,5})")
BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]:([0-9]{1,5})")
EVERY_INTERFACE = {"0.0.0.0", "*", "::"}


def check_address(flag: str, address: str) -> None:
    """Raises SettingsError naming the flag unless the address is HOST:PORT."""
    match = NAMED.fullmatch(address) or BRACKETED.fullmatch(address)
    if match is None or not 0 < int(match[2]) <= 65535 or ("[" in address and not is_ipv6(match[1])):
        raise SettingsError(f"{flag} {address}: must be HOST:PORT, for example 192.168.1.7:5555 or [fd00::7]:5555")


def is_host(host: str) -> bool:
    """Whether it is a name or an address that HOST of HOST:PORT can be."""
    return is_ipv6(host) or NAMED.fullmatch(f"{host}:1") is not None


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port."""
    host, _, port = address.rpartition(":")
    return bare_host(host), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def bare_host(host: str) -> str:
    """Without the brackets that an IPv6 address may be typed in."""
    return host.removeprefix("[").removesuffix("]")


def is_ipv6(host: str) -> bool:
    """Whether it is an IPv6 address, rather than a name or an IPv4 address."""
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
