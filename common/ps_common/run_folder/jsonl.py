"""
Files of JSON objects, one a line, read a line at a time, however long the file is.

Damaged lines, as a killed writer leaves them, are skipped.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from ps_common.settings.regular_file import opened

R = TypeVar("R", bound=msgspec.Struct)

MOST_BYTES = 2**30  # of a file that is read whole; ps-server thins those that it writes at 32 MiB
LONGEST_LINE = TAIL_BYTES = 2**20  # of a file, searched for its last whole line


def rows_in(path: Path, kind: type[R]) -> Iterator[R]:
    """The rows of a file. Raises OSError."""
    with opened(path, most_bytes=MOST_BYTES) as file:
        yield from rows_of(iter(partial(file.readline, LONGEST_LINE), b""), kind)


def rows_of(lines: Iterable[bytes], kind: type[R]) -> Iterator[R]:
    """The rows in lines."""
    decoder = msgspec.json.Decoder(kind)
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            yield decoder.decode(line)


def last_row(path: Path, kind: type[R]) -> R | None:
    """The last row of a file; None without one near its end. Raises OSError."""
    with opened(path) as file:
        lines = _tail(file).splitlines()
    return next(rows_of(reversed(lines), kind), None)


def _tail(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read()
