"""
Which address a worker connects to next: one of those that the user typed, or the one in the server's endpoint file.

A server that a cluster's scheduler starts anew, on another machine or port, writes a new address into that file, which
its workers read on a file system that they share.
"""

from collections.abc import Sequence
from pathlib import Path

from ps_common.run_folder.endpoint_file import read_endpoint

LOOK_SECONDS = 1.0  # between two looks at the file, while the worker is not served


class ServerAddress:
    """HOST:PORT, HOST:PORT,HOST:PORT of a server and its standby, or the path of an endpoint file."""

    def __init__(self, server: str) -> None:
        self._file = Path(server) if is_path(server) else None
        self._typed = [] if self._file else server.split(",")
        self._current = ""
        self._looked = 0.0
        self._current = self._newest()

    def __str__(self) -> str:
        return self._current or f"the server of {self._file}"

    @property
    def current(self) -> str:
        """The address to connect to; "" while the file has none."""
        return self._current

    @property
    def known(self) -> Sequence[str]:
        """All addresses that the server may have."""
        return self._typed or list(filter(None, [self._current]))

    def advance(self) -> None:
        """Take the next address."""
        if self._typed:
            self._typed.append(self._typed.pop(0))
        self._current = self._newest()

    def has_moved(self, *, now: float) -> bool:
        """Whether the file, looked at now and then, has another address than the current one."""
        if self._file is None or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._newest() != self._current

    def _newest(self) -> str:
        """The first of the typed addresses; or that of the file, which is the last known one while there is no file."""
        if self._file is None:
            return self._typed[0]
        return read_endpoint(self._file) or self._current


def is_path(server: str) -> bool:
    """Whether it is the path of a file, rather than HOST:PORT: no host name has a slash."""
    return "/" in server and "://" not in server
