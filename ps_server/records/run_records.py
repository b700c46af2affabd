"""
The records of a run in its folder: settings, metrics, episodes, events, summaries, and the endpoint while the run is
served. Checkpoints are no part of them.

The serving thread hands over immutable values to a writer thread, so it never waits for the disk. When the disk does
not keep up, records are dropped and counted.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ps_common.program.output import WriterThread
from ps_common.protocol.status import Status
from ps_common.run_folder.endpoint_file import remove_endpoint, write_endpoint
from ps_common.run_folder.paths import ENDPOINT, EVALUATIONS, EVENTS, TENSORBOARD, write_whole
from ps_common.run_folder.run_rows import EvaluationRow, EventRow
from ps_common.settings.run_files import SETTINGS
from ps_common.settings.run_spec import RunSpec
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.records.history import EpisodesFile, MetricsFiles
from ps_server.records.tensorboard import Summaries
from ps_server.state.effects import Recorded, RecordEvaluation, RecordEvent, RecordReport

MOST_WAITING = 100_000  # games and rows in the queue: ten to thirty MiB
EVENTS_BYTES = 2**23  # the bound of events.jsonl, and of evaluations.jsonl: forty thousand lines
OF_EVALUATIONS = ("global_steps", "minutes", "version", "games", "mean_return", "low", "high", "metrics")
CLOSE_SECONDS = 5.0  # for the queue when the server exits

log = logging.getLogger("ps-server")


class RunRecords:
    """The records of one run. `spec` returns its specification; None until a first worker has decided it."""

    def __init__(
        self, folder: Path, spec: Callable[[], RunSpec | None], *, endpoint: str, most_waiting: int = MOST_WAITING
    ) -> None:
        """Raises OSError."""
        self._files = _RecordFiles(folder, endpoint)
        self._spec = spec
        self._written: RunSpec | None = None
        self._global_steps: int | None = None  # T when something was recorded last
        self._warned_of = 0  # dropped records
        self._writer = WriterThread("records-writer", most=most_waiting)

    def tick(self, status: Status) -> None:
        self._global_steps = status.global_steps
        self._add_spec()
        self._do(
            partial(self._files.metrics.add, status, now=time.monotonic(), time_of_day=time.time()),
            size=1 + len(status.workers),
        )

    def add(self, record: Recorded) -> None:
        if isinstance(record, RecordEvaluation):
            self._do(partial(self._files.add_evaluation, record, time.time()))
            return
        if isinstance(record, RecordEvent):
            self._do(partial(self._files.add_event, record, time.time()))
            return
        self._add_spec()
        self._global_steps = record.global_steps
        self._do(partial(self._files.add_report, record), size=1 + len(record.episodes))

    def close(self, status: Status) -> bool:
        """Write the last rows and remove the endpoint. Returns whether everything was written in time."""
        self._add_spec()
        self._do(partial(self._files.close, status, time.time()), size=0)
        is_done = self._writer.close(within_seconds=CLOSE_SECONDS)
        if not is_done:
            log.warning("the disk does not accept the run's records; the last of them are lost")
        return is_done

    def _add_spec(self) -> None:
        """Record the settings when they are decided or have changed."""
        spec = self._spec()
        if spec is not None and (spec != self._written or self._files.lacks_settings):
            self._written = spec
            self._do(partial(self._files.add_spec, spec, self._global_steps))

    def _do(self, work: Callable[[], None], *, size: int = 1) -> None:
        self._writer.do(work, size=size)
        dropped = self._writer.dropped
        if dropped >= 2 * max(self._warned_of, 1) or (dropped and not self._warned_of):  # 1, 2, 4, …
            self._warned_of = dropped
            log.warning("the disk does not keep up with the run's records: %d were dropped so far", dropped)


class _RecordFiles:
    """The files. The writer thread owns them."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        """Raises OSError."""
        self._folder = folder
        self.metrics = MetricsFiles(folder)
        self._episodes = EpisodesFile(folder)
        self._events = BoundedLinesFile(folder / EVENTS, most_bytes=EVENTS_BYTES)
        self._evaluations = BoundedLinesFile(folder / EVALUATIONS, most_bytes=EVENTS_BYTES)
        self.lacks_settings = False  # the disk has refused them
        self._summaries: Summaries | None = None
        self._endpoint = endpoint
        write_endpoint(folder / ENDPOINT, endpoint)

    def add_report(self, report: RecordReport) -> None:
        self._episodes.add(report)
        if self._summaries is not None:
            self._summaries.add(report)

    def add_evaluation(self, record: RecordEvaluation, time_of_day: float) -> None:
        given = {name: getattr(record.evaluation, name) for name in OF_EVALUATIONS}
        row = EvaluationRow(time=time_of_day, episodes=record.episodes, best=record.best, **given)
        self._evaluations.add([row])
        if self._summaries is not None:
            self._summaries.add_evaluation(row)

    def add_event(self, record: RecordEvent, time_of_day: float) -> None:
        self._events.add([EventRow.of(record.event, epoch=record.epoch, time=time_of_day)])

    def add_spec(self, spec: RunSpec, global_steps: int | None) -> None:
        what = SETTINGS
        try:
            write_whole(self._folder / SETTINGS, spec.to_toml())
            what = TENSORBOARD
            self._begin_summaries(spec, global_steps)
            self.lacks_settings = False
        except OSError as error:
            if not self.lacks_settings:
                log.warning("%s: cannot be written, the run goes on without it: %s", what, error.strerror)
            self.lacks_settings = True

    def _begin_summaries(self, spec: RunSpec, global_steps: int | None) -> None:
        """A change of settings leaves the event file as it is. Raises OSError."""
        if self._summaries is None and spec.records.summaries != "none":
            self._summaries = Summaries(self._folder, global_steps=global_steps)

    def close(self, status: Status, time_of_day: float) -> None:
        self.metrics.close(status, time_of_day=time_of_day)
        self._episodes.close()
        self._events.close()
        self._evaluations.close()
        if self._summaries is not None:
            self._summaries.close()
        remove_endpoint(self._folder / ENDPOINT, self._endpoint)
