"""
Files of JSON objects, one a line, read a line at a time, however long the file is.

Damaged lines, as a killed writer leaves them, are skipped.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)

TAIL_BYTES = 2**20  # of a file, searched for its last whole line


def rows_in(path: Path, kind: type[R]) -> Iterator[R]:
    """The rows of a file. Raises OSError."""
    with path.open("rb") as file:
        yield from rows_of(file, kind)


def rows_of(lines: Iterable[bytes], kind: type[R]) -> Iterator[R]:
    """The rows in lines."""
    decoder = msgspec.json.Decoder(kind)
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield decoder.decode(line)


def last_row(path: Path, kind: type[R]) -> R | None:
    """The last row of a file; None without one near its end. Raises OSError."""
    with path.open("rb") as file:
        lines = _tail(file).splitlines()
    return next(rows_of(reversed(lines), kind), None)


def _tail(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read()
