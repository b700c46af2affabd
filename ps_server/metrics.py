"""The history of a run: one JSON object a line, made from the status."""

import contextlib
import logging
import os
import time
from pathlib import Path

import msgspec

from common.status import Status

EVERY_SECONDS = 2.0
FILE_NAME = "metrics.jsonl"

log = logging.getLogger("ps-server")


class MetricsFile:
    """
    Appends a row to RUN_DIR/metrics.jsonl every two seconds; a resumed run goes on in the same file.

    A disk that takes no more rows is told once; it does not end the run.
    """

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._file = (run_folder / FILE_NAME).open("a+b")
        self._end_line()
        self._due = 0.0
        self._failing = False

    def add(self, status: Status, *, now: float) -> None:
        """Write the status if it is time; `now` is seconds of any monotonic clock."""
        if now >= self._due:
            self._due = now + EVERY_SECONDS
            self._write(status)

    def close(self, status: Status) -> None:
        """Write the last row."""
        self._write(status)
        with contextlib.suppress(OSError):  # told by then
            self._file.close()

    def _end_line(self) -> None:
        """A server that was killed may have left half a line; what follows begins one of its own."""
        if self._file.seek(0, os.SEEK_END) > 0:
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def _write(self, status: Status) -> None:
        row = msgspec.to_builtins(status)
        row["time"] = time.time()
        try:
            self._file.write(msgspec.json.encode(row) + b"\n")
            self._file.flush()
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s: cannot be written to, the run goes on without: %s", FILE_NAME, error.strerror)
            self._failing = True
