"""
What a run leaves in its folder beside checkpoints: settings, metrics, episodes, summaries; while it lives its endpoint.

It is told immutable values by the thread that serves.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from common.run_folder import SETTINGS
from common.run_spec import RunSpec
from common.status import Status
from ps_server.effects import Reported
from ps_server.episodes import EpisodesFile
from ps_server.metrics import MetricsFile
from ps_server.summaries import STYLES, SummaryFile, SummaryPoints

log = logging.getLogger("ps-server")


class RunRecords:
    """The records of one run. `spec` tells its specification; None until a worker has brought it."""

    def __init__(self, folder: Path, spec: Callable[[], RunSpec | None], *, endpoint: str) -> None:
        """Raises OSError."""
        self._folder = folder
        self._spec = spec
        self._metrics = MetricsFile(folder)
        self._episodes = EpisodesFile(folder)
        self._summaries: _Summaries | None = None
        self._endpoint = folder / "endpoint"
        self._endpoint.write_text(endpoint + "\n")
        self._written: RunSpec | None = None

    def tick(self, status: Status) -> None:
        """How the run is now."""
        self._note_spec()
        self._metrics.add(status, now=time.monotonic())

    def reported(self, report: Reported) -> None:
        """What a worker has told."""
        self._note_spec()
        self._episodes.add(report)
        if self._summaries is not None:
            self._summaries.add(report)

    def close(self, status: Status) -> None:
        """Write the last row; the run no longer lives here."""
        self._metrics.close(status)
        self._episodes.close()
        if self._summaries is not None:
            self._summaries.close()
        self._endpoint.unlink(missing_ok=True)

    def _note_spec(self) -> None:
        """Once the run is decided, or decided anew."""
        spec = self._spec()
        if spec is None or spec is self._written:
            return
        self._written = spec
        try:
            (self._folder / SETTINGS).write_text(spec.to_toml())
            self._summaries = _Summaries(self._folder, spec) if spec.records.summaries != "none" else None
        except OSError as error:
            log.warning("%s: cannot be written, the run goes on without: %s", error.filename, error.strerror)


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
