"""
A file of JSON objects, one a line, that outlives the server: written while a run goes, read again line by line.

A disk that takes no more lines is told once; it does not end the run.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)

log = logging.getLogger("ps-server")


class LinesFile:
    """Appends to `path`; a resumed run goes on in the same file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._name = path.name
        self._file = path.open("a+b")
        self._end_line()
        self._failing = False

    def add(self, rows: Sequence[Any]) -> None:
        """A line for each row; they can be read at once."""
        try:
            self._file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
            self._file.flush()
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s: cannot be written to, the run goes on without: %s", self._name, error.strerror)
            self._failing = True

    def close(self) -> None:
        with contextlib.suppress(OSError):  # told by then
            self._file.close()

    def _end_line(self) -> None:
        """A server that was killed may have left half a line; what follows begins one of its own."""
        if self._file.seek(0, os.SEEK_END) > 0:
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")


def rows_in(path: Path, kind: type[R]) -> list[R]:
    """The whole lines of a file, without those that are damaged. Raises OSError."""
    rows = []
    for line in path.read_bytes().splitlines():
        # A server that was killed may leave half a line.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            rows.append(msgspec.json.decode(line, type=kind))
    return rows
