"""The end of a run that has failed, in its records, where no server is left to write it."""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.paths import ENDPOINT, EVENTS, METRICS
from ps_common.run_folder.run_rows import NOTHING, EventRow, MetricsRow, last_row
from ps_common.settings.regular_file import opened_to_write


def record_failure(run_folder: Path, why: str) -> None:
    """
    Append to the records that the run has failed, and why, where no server has done so and none is left to do it.

    Nothing if a server keeps a run there, or the disk refuses.
    """
    last, event = last_row(run_folder / METRICS, MetricsRow), last_row(run_folder / EVENTS, EventRow)
    if last is not None and last.failed:
        return
    why, now = as_text(why, LONGEST_SENTENCE), time.time()
    last = last or msgspec.convert(NOTHING | {"time": now}, MetricsRow)
    end = EventRow(
        time=now,
        epoch=last.epoch,
        number=event.number + 1 if event is not None and event.epoch == last.epoch else 1,
        kind="end",
        text=f"the run has failed: {why}",
        global_steps=last.global_steps,
        minutes=last.minutes,
    )
    failed = msgspec.structs.replace(last, time=now, ending=why, failed=True, workers_alive=0)
    with contextlib.suppress(OSError, SettingsError), contextlib.closing(FolderLocks([run_folder])):
        _append(run_folder / METRICS, failed)
        _append(run_folder / EVENTS, end)
        (run_folder / ENDPOINT).unlink(missing_ok=True)  # of a server that was killed


def _append(path: Path, row: msgspec.Struct) -> None:
    """Append a row as a line of its own: a killed writer leaves half a line. Raises OSError."""
    with opened_to_write(path) as file:
        is_torn = file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) and file.read() != b"\n"
        file.write((b"\n" if is_torn else b"") + msgspec.json.encode(row) + b"\n")
