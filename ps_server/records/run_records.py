"""
What a run leaves in its folder beside checkpoints: settings, metrics, episodes, summaries; while it lives its endpoint.

The thread that serves hands over immutable values, and never waits for a disk: another thread writes. What a disk
cannot keep up with is dropped and counted.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common.protocol.status import Status
from common.run_folder.paths import ENDPOINT, SETTINGS
from common.run_folder.writer_thread import WriterThread
from common.settings.run_spec import RunSpec
from ps_server.machine.effects import Reported
from ps_server.records.episodes import EpisodesFile
from ps_server.records.metrics import MetricsFiles
from ps_server.records.tensorboard import STYLES, SummaryFile, SummaryPoints

MOST_WAITING = 100_000  # games and rows, before some are dropped: ten to thirty MiB
CLOSE_SECONDS = 5.0  # for what waits when the server ends

log = logging.getLogger("ps-server")


class RunRecords:
    """The records of one run. `spec` tells its specification; None until a worker has brought it."""

    def __init__(
        self, folder: Path, spec: Callable[[], RunSpec | None], *, endpoint: str, most_waiting: int = MOST_WAITING
    ) -> None:
        """Raises OSError."""
        self._files = _RecordFiles(folder, endpoint)
        self._spec = spec
        self._noted: RunSpec | None = None
        self._lost = 0  # that were told
        self._writer = WriterThread("records-writer", most=most_waiting)

    def tick(self, status: Status) -> None:
        """How the run is now."""
        self._note_spec()
        self._do(partial(self._files.add_status, status, time.monotonic(), time.time()), size=1 + len(status.workers))

    def reported(self, report: Reported) -> None:
        """What a worker has told."""
        self._note_spec()
        self._do(partial(self._files.add_report, report), size=1 + len(report.episodes))

    def close(self, status: Status) -> bool:
        """Write the last row; the run no longer lives here. Whether the disk has taken all of it in time."""
        self._note_spec()
        self._do(partial(self._files.close, status, time.time()), size=0)
        is_done = self._writer.close(within_seconds=CLOSE_SECONDS)
        if not is_done:
            log.warning("the disk does not take the run's records; the last of them are lost")
        return is_done

    def _note_spec(self) -> None:
        """Once the run is decided, or decided anew."""
        spec = self._spec()
        if spec is not None and spec is not self._noted:
            self._noted = spec
            self._do(partial(self._files.note_spec, spec))

    def _do(self, work: Callable[[], None], *, size: int = 1) -> None:
        self._writer.do(work, size=size)
        dropped = self._writer.dropped
        if dropped >= 2 * max(self._lost, 1) or (dropped and not self._lost):  # 1, 2, 4, …
            self._lost = dropped
            log.warning("the disk does not keep up with the run's records: %d were dropped so far", dropped)


class _RecordFiles:
    """The files, which the writing thread owns."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        """Raises OSError."""
        self._folder = folder
        self._metrics = MetricsFiles(folder)
        self._episodes = EpisodesFile(folder)
        self._summaries: _Summaries | None = None
        (folder / ENDPOINT).write_text(endpoint + "\n")

    def add_status(self, status: Status, now: float, time_of_day: float) -> None:
        self._metrics.add(status, now=now, time_of_day=time_of_day)

    def add_report(self, report: Reported) -> None:
        self._episodes.add(report)
        if self._summaries is not None:
            self._summaries.add(report)

    def note_spec(self, spec: RunSpec) -> None:
        try:
            (self._folder / SETTINGS).write_text(spec.to_toml())
            self._summaries = _Summaries(self._folder, spec) if spec.records.summaries != "none" else None
        except OSError as error:
            log.warning("%s: cannot be written, the run goes on without: %s", error.filename, error.strerror)

    def close(self, status: Status, time_of_day: float) -> None:
        self._metrics.close(status, time_of_day=time_of_day)
        self._episodes.close()
        if self._summaries is not None:
            self._summaries.close()
        (self._folder / ENDPOINT).unlink(missing_ok=True)


class _Summaries:
    """Points of reports, and the file they go to."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self._points = SummaryPoints(
            STYLES[spec.records.summaries],
            every_updates=spec.records.summary_every_updates,
            frames_per_step=spec.environment.frames_per_step,
        )
        self._file = SummaryFile(folder)
        self._global_steps = 0  # when the last report came

    def add(self, report: Reported) -> None:
        self._global_steps = report.global_steps
        if point := self._points.add(report):
            self._file.add(point, global_steps=report.global_steps)

    def close(self) -> None:
        """The last reports have a point too: a short run may have no other."""
        if point := self._points.rest():
            self._file.add(point, global_steps=self._global_steps)
        self._file.close()
