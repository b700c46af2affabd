"""HOST:PORT, as users type it."""

import re

from common.errors import SettingsError

ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*:([0-9]{1,5})")


def check_address(flag: str, address: str) -> None:
    """Raises SettingsError naming the flag unless the address is HOST:PORT."""
    match = ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[1]) <= 65535:
        raise SettingsError(f"{flag} {address}: must be HOST:PORT, for example 192.168.1.7:5555")
