"""The events of a run, as its server has numbered them: lines of RUN_DIR/events.jsonl."""

from pathlib import Path

from ps_common.run_folder.paths import EVENTS
from ps_common.run_folder.run_rows import EventRow
from ps_server.machine.effects import Happened
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.records.thinning import newest_events

MOST_BYTES = 2**23  # forty thousand lines


class EventsFile:
    """Appends to RUN_DIR/events.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._lines = BoundedLinesFile(run_folder / EVENTS, most_bytes=MOST_BYTES, thin=newest_events)

    def add(self, happened: Happened, *, time_of_day: float) -> None:
        """`time_of_day` is in seconds since 1970."""
        self._lines.add([EventRow.of(happened.event, epoch=happened.epoch, time=time_of_day)])

    def close(self) -> None:
        self._lines.close()
