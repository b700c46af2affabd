"""
A file of JSON objects, one a line, that outlives the server: written while a run goes, read again line by line.

A disk that takes no more lines is told once; it does not end the run.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)

log = logging.getLogger("ps-server")


class AppendedFile:
    """An open file that records are added to, whatever the disk says. `name` is what people call it."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._failing = False

    def add(self, data: bytes) -> None:
        """Write it; it can be read at once."""
        try:
            self._file.write(data)
            self._file.flush()
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s: cannot be written to, the run goes on without: %s", self._name, error.strerror)
            self._failing = True

    def close(self) -> None:
        with contextlib.suppress(OSError):  # told by then
            self._file.close()


class LinesFile:
    """Appends to `path`; a resumed run goes on in the same file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        file = path.open("a+b")
        _end_line(file)
        self._file = AppendedFile(file, path.name)

    def add(self, rows: Sequence[Any]) -> None:
        """A line for each row; they can be read at once."""
        self._file.add(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

    def close(self) -> None:
        self._file.close()


def rows_in(path: Path, kind: type[R]) -> list[R]:
    """The whole lines of a file, without those that are damaged. Raises OSError."""
    rows = []
    for line in path.read_bytes().splitlines():
        # A server that was killed may leave half a line.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            rows.append(msgspec.json.decode(line, type=kind))
    return rows


def _end_line(file: IO[bytes]) -> None:
    """A server that was killed may have left half a line; what follows begins one of its own."""
    if file.seek(0, os.SEEK_END) > 0:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
