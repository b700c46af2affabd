"""
Files that a run appends to for weeks: their size is bounded, and a failing disk, reported once, does not end the run.

Thinning reduces the older half of a long file to a quarter, whose lines are spread evenly over time. A file that is
thinned again and again holds the newest hours line by line, and all earlier time as points at equal distances.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from ps_common.run_folder.paths import replacement_of
from ps_common.run_folder.run_rows import rows_of
from ps_common.settings.regular_file import opened, opened_to_write

log = logging.getLogger("ps-server")


class AppendedFile:
    """
    An open file that records are appended to, even while the disk fails: it has whole records alone.

    `name` is its name in warnings.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._failing = False

    def add(self, data: bytes) -> int:
        """
        Append past the buffer, which would keep what a full disk refuses; readers see the data at once. Returns by how
        many bytes the file is longer.
        """
        descriptor, rest = self._file.fileno(), memoryview(data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            self._failing = False
            return len(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - (len(data) - len(rest)))
            if not self._failing:
                log.warning("%s: cannot be written, the run goes on without it: %s", self._name, error.strerror)
            self._failing = True
            return 0

    def close(self) -> None:
        with contextlib.suppress(OSError):  # reported by then
            self._file.close()


class BoundedLinesFile:
    """
    Appends JSON objects, one a line, to `path`; a resumed run continues the same file.

    Each row has `minutes`. Beyond `most_bytes` the older half of the lines is thinned to half as many.
    """

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        """Raises OSError."""
        self._path = path
        self._most_bytes = most_bytes
        self._append_to(opened_to_write(path))

    def add(self, rows: Sequence[Any]) -> None:
        """Append a line for each row; readers see them at once."""
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        self._bytes += self._file.add(lines)
        if self._bytes > self._due_bytes:
            self._shrink()

    def close(self) -> None:
        self._file.close()

    def _append_to(self, file: IO[bytes]) -> None:
        _end_line(file)
        self._bytes = file.seek(0, os.SEEK_END)
        # A file that thinning cannot shrink is not thinned again for each line.
        self._due_bytes = max(self._most_bytes, self._bytes + self._most_bytes // 8)
        self._file = AppendedFile(file, self._path.name)

    def _shrink(self) -> None:
        """Replace the file by a thinned one, atomically: a reader sees the one or the other."""
        beside = replacement_of(self._path)
        try:
            with opened(self._path) as old, opened_to_write(beside, replaces=True) as new:
                new.writelines(evenly_in_time(_lines_until(old, self._bytes // 2)))
                shutil.copyfileobj(old, new)
            file = opened_to_write(beside)  # before the larger one goes: where this fails, rows go on to that
            beside.replace(self._path)
        except OSError as error:
            log.warning("%s: cannot be thinned now: %s", self._path.name, error.strerror)
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            self._due_bytes = self._bytes + self._most_bytes // 8
        else:
            self._file.close()
            self._append_to(file)


def _lines_until(file: IO[bytes], offset: int) -> list[bytes]:
    lines = []
    while file.tell() < offset and (line := file.readline()):
        lines.append(line)
    return lines


def _end_line(file: IO[bytes]) -> None:
    """End the half line that a killed server may have left."""
    if file.seek(0, os.SEEK_END) > 0:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
            file.flush()


class _Stamp(msgspec.Struct):
    """When a line was written, and the series that it belongs to: of a worker, a curve, or a kind of events."""

    minutes: float
    worker_id: str = ""  # in rows of workers, and of events
    worker: str = ""  # in rows of games
    name: str = ""  # of a curve
    kind: str = ""  # of events

    @property
    def series(self) -> tuple[str, ...]:
        return self.worker_id, self.worker, self.name, self.kind


def evenly_in_time(lines: Sequence[bytes]) -> list[bytes]:
    """About half of the lines: of each series the first line of each interval; of more series, every second line."""
    stamps = [(line, stamp) for line in lines for stamp in rows_of([line], _Stamp)]
    if not stamps:
        return []
    start = min(stamp.minutes for _, stamp in stamps)
    span = max(stamp.minutes for _, stamp in stamps) - start
    series = len({stamp.series for _, stamp in stamps})
    intervals = max(1, len(stamps) // (2 * series))
    kept, newest = [], dict[tuple[str, ...], int]()
    for line, stamp in stamps:
        interval = min(intervals - 1, int((stamp.minutes - start) / span * intervals)) if span else 0
        if newest.get(stamp.series) != interval:
            newest[stamp.series] = interval
            kept.append(line)
    most = max(1, len(stamps) // 2)
    return kept if len(kept) <= most else [kept[number * len(kept) // most] for number in range(most)]
