"""HOST:PORT, as users type it."""

import re

from common.errors import SettingsError


def check_address(flag: str, address: str) -> None:
    """Raises SettingsError naming the flag unless the address is HOST:PORT."""
    if not re.fullmatch(r"[^\s:/]+:\d{1,5}", address) or not 0 < int(address.rpartition(":")[2]) <= 65535:
        raise SettingsError(f"{flag} {address}: must be HOST:PORT, for example 192.168.1.7:5555")
