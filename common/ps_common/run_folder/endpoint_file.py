"""
The file in which a server says where it listens, while it serves: HOST:PORT.

Processes that share the run folder find the server by it, also after it moved to another machine. A reader finds a
whole address, and a server that was replaced does not remove its successor's.
"""

from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.protocol.addresses import check_address
from ps_common.run_folder.paths import ENDPOINT, replacement_of, shard_folder, shards_in
from ps_common.settings.regular_file import content_of


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


def address_of(flag: str, server: str) -> str:
    """
    HOST:PORT of the server that is named so, or that serves the run in this folder (of shards, the first).

    `server` is HOST:PORT, a run folder or an endpoint file. Raises SettingsError that names the flag.
    """
    path = Path(server)
    if ":" in server and not path.exists():
        check_address(flag, server)
        return server
    if path.is_dir():
        path = shard_folder(path, 1, shards_in(path)) / ENDPOINT
    if address := read_endpoint(path):
        return address
    raise SettingsError(
        f"{flag} {server}: no server serves a run there now; give HOST:PORT, or the folder of a live run"
    )


def remove_endpoint(path: Path, address: str) -> None:
    """Remove the file unless another server's address is in it by now. Raises OSError."""
    if read_endpoint(path) == address:
        path.unlink(missing_ok=True)
