"""The history of a run: one JSON object a line, made from the status."""

import time
from pathlib import Path

import msgspec

from common.status import Status
from ps_server.lines_file import LinesFile

EVERY_SECONDS = 2.0
FILE_NAME = "metrics.jsonl"


class MetricsFile:
    """Appends a row to RUN_DIR/metrics.jsonl every two seconds."""

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._lines = LinesFile(run_folder / FILE_NAME)
        self._due = 0.0

    def add(self, status: Status, *, now: float) -> None:
        """Write the status if it is time; `now` is seconds of any monotonic clock."""
        if now >= self._due:
            self._due = now + EVERY_SECONDS
            self._write(status)

    def close(self, status: Status) -> None:
        """Write the last row."""
        self._write(status)
        self._lines.close()

    def _write(self, status: Status) -> None:
        self._lines.add([msgspec.to_builtins(status) | {"time": time.time()}])
