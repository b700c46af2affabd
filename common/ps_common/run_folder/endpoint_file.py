"""
The file with the address of a server, HOST:PORT, while it serves.

Processes that share the run folder find the server by it, also after it moved to another machine. A reader finds a
whole address, and a server that was replaced does not remove its successor's.
"""

from collections.abc import Sequence
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.protocol.names import check_address
from ps_common.protocol.status import how_it_ended
from ps_common.run_folder.folder_lock import is_locked
from ps_common.run_folder.paths import ENDPOINT, METRICS, shard_folder, shards_in, write_whole
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_common.settings.regular_file import content_of

LOOK_SECONDS = 1.0  # between two looks at the file, while the worker is not served


def write_endpoint(path: Path, address: str) -> None:
    """Raises OSError."""
    write_whole(path, f"{address}\n")


def read_endpoint(path: Path) -> str:
    """HOST:PORT; "" while no server serves, or the file cannot be read, or is another one."""
    try:
        address = content_of(path).decode().strip()
        check_address(str(path), address)
    except (OSError, UnicodeDecodeError, SettingsError):
        return ""
    return address


def is_serving(folder: Path) -> bool:
    """Whether a server has its address in this folder, and keeps the folder: a killed one leaves its address."""
    return bool(read_endpoint(folder / ENDPOINT)) and is_locked(folder)


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
    last = last_row(path.with_name(METRICS), MetricsRow)
    ended = f" (its run: {how_it_ended(last)})" if last is not None and last.ending else ""
    raise SettingsError(
        f"{flag} {server}: no server serves a run there now{ended}; give HOST:PORT, or the folder of a live run"
    )


def remove_endpoint(path: Path, address: str) -> None:
    """Remove the file unless another server's address is in it by now. Raises OSError."""
    if read_endpoint(path) == address:
        path.unlink(missing_ok=True)


class ServerAddress:
    """
    Which address a worker connects to next.

    `server` is HOST:PORT, HOST:PORT,HOST:PORT of a server and its standby, or the path of an endpoint file.
    """

    def __init__(self, server: str) -> None:
        self._file = Path(server) if is_path(server) else None
        self._typed = typed_addresses(server)
        self.current = ""  # the address to connect to; "" while the file has none
        self.current = self._newest()
        self._looked = 0.0

    def __str__(self) -> str:
        return self.current or f"the server of {self._file}"

    @property
    def known(self) -> Sequence[str]:
        """All addresses that the server may have."""
        return self._typed or list(filter(None, [self.current]))

    def advance(self) -> None:
        """Take the next address."""
        if self._typed:
            self._typed.append(self._typed.pop(0))
        self.current = self._newest()

    def has_moved(self, *, now: float) -> bool:
        """Whether the file, looked at now and then, has another address than the current one."""
        if self._file is None or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._newest() != self.current

    def _newest(self) -> str:
        """The first of the typed addresses; or that of the file, which is the last known one while there is no file."""
        if self._file is None:
            return self._typed[0]
        return read_endpoint(self._file) or self.current


def is_path(server: str) -> bool:
    """Whether the text is the path of a file, and not HOST:PORT: no host name has a slash."""
    return "/" in server and "://" not in server


def typed_addresses(server: str) -> list[str]:
    """The address of a server, and of its standby, in a text that ServerAddress takes; none where a file has it."""
    return [] if is_path(server) else server.split(",")


def check_server(flag: str, server: str) -> None:
    """Raises SettingsError that names the flag unless ServerAddress takes the text."""
    for address in typed_addresses(server):
        check_address(flag, address)
