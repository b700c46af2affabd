"""
The file in which a server says where it listens, while it serves: HOST:PORT.

Processes that share the run folder find the server by it, also after it moved to another machine. A reader finds a
whole address, and a server that was replaced does not remove its successor's.
"""

from pathlib import Path

from common.errors import SettingsError
from common.protocol.addresses import check_address
from common.run_folder.paths import replacement_of
from common.settings.regular_file import content_of


def write_endpoint(path: Path, address: str) -> None:
    """Raises OSError."""
    beside = replacement_of(path)
    beside.write_text(address + "\n", encoding="utf-8")
    beside.replace(path)


def read_endpoint(path: Path) -> str:
    """HOST:PORT; "" while no server serves, or the file cannot be read, or is another one."""
    try:
        address = content_of(path).decode().strip()
        check_address(str(path), address)
    except (OSError, UnicodeDecodeError, SettingsError):
        return ""
    return address


def remove_endpoint(path: Path, address: str) -> None:
    """Remove the file unless another server's address is in it by now. Raises OSError."""
    if read_endpoint(path) == address:
        path.unlink(missing_ok=True)
