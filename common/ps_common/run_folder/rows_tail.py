"""
The rows that were appended to a file of JSON lines since it was read last.

The writer thins a file that has become too long: it puts a shorter one in its place. Such a file is read anew.
"""

import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ps_common.run_folder.jsonl import rows_of
from ps_common.settings.regular_file import opened

R = TypeVar("R", bound=msgspec.Struct)

MOST_BYTES_AT_ONCE = 2**26  # more than the longest file of a run folder


class RowsTail(Generic[R]):
    """
    One reader of one file, which need not exist yet.

    With `most_rows`, of more new rows than that only some are decoded, spread evenly: enough for a curve.
    """

    def __init__(self, path: Path, kind: type[R], *, most_rows: int | None = None) -> None:
        self._path = path
        self._kind = kind
        self._most_rows = most_rows
        self._inode = 0
        self._offset = 0

    def read(self) -> tuple[list[R], bool]:
        """The new rows in order, the newest among them, and whether they begin anew with the file's first row."""
        try:
            with opened(self._path) as file:
                state = os.fstat(file.fileno())
                is_new = state.st_ino != self._inode or state.st_size < self._offset
                if is_new:
                    self._inode, self._offset = state.st_ino, 0
                file.seek(self._offset)
                data = file.read(MOST_BYTES_AT_ONCE)
        except OSError:
            return [], False
        end = data.rfind(b"\n") + 1  # the writer may be in the middle of a line
        whole = data if end == 0 and len(data) == MOST_BYTES_AT_ONCE else data[:end]
        self._offset += len(whole)
        lines = whole.splitlines()
        step = -(-len(lines) // (self._most_rows or len(lines) or 1)) or 1
        return list(rows_of(lines[::-1][::step][::-1], self._kind)), is_new
