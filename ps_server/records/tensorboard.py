"""
Summaries of a run for TensorBoard: which numbers, under which tags, how often, and the event file that has them.

The x axis is T, the environment steps of all workers. A point is the mean of the values reported since the previous
point; a number without reports has no point. tensorboardX writes the file, by the part of it that has no thread.
"""

import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from ps_common.run_folder.paths import TENSORBOARD
from ps_common.run_folder.run_rows import EvaluationRow
from ps_common.settings.regular_file import made_folder
from ps_server.state.effects import RecordReport

POINT_MINUTES = 2 / 60  # between two points: a week takes about 100 MB

# The tag of each number: a meter of reports, or episode_return and episode_length. A meter whose name has a slash is
# its own tag.
RETURN = "Perf/Reward"
TAGS = {
    "episode_return": RETURN,
    "episode_length": "Perf/Length",
    "value": "Perf/Value",
    "value_loss": "Losses/Value Loss",
    "policy_loss": "Losses/Policy Loss",
    "entropy": "Losses/Entropy",
    "gradient_norm": "Losses/Grad Norm",
    "weight_norm": "Losses/Var Norm",
}

log = logging.getLogger("ps-server")


class SummaryPoints:
    """Makes points of reports, at most one in two seconds."""

    def __init__(self) -> None:
        self._due_minutes: float | None = None
        self._seen: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))  # sum and count, by tag

    def add(self, report: RecordReport) -> dict[str, float]:
        """Add a report. Returns the point, by tag, that it completes; else an empty one."""
        for name, value in report.meters.items():
            if name in TAGS or "/" in name:
                self._add(name, value)
        for episode in report.episodes:
            self._add("episode_return", episode.episode_return)
            self._add("episode_length", episode.length)
        if self._due_minutes is None:
            self._due_minutes = report.minutes + POINT_MINUTES
        if report.minutes < self._due_minutes:
            return {}
        self._due_minutes = report.minutes + POINT_MINUTES
        return self.rest()

    def rest(self) -> dict[str, float]:
        """The point of the reports since the last point; empty without any."""
        point = {tag: total / count for tag, (total, count) in self._seen.items()}
        self._seen.clear()
        return point

    def _add(self, name: str, value: float) -> None:
        tag = TAGS.get(name, name)
        total, count = self._seen[tag]
        self._seen[tag] = total + value, count + 1


class EventFile:
    """
    An event file in RUN_DIR/tensorboard, or in the folder `within` it; a resumed run begins another, which TensorBoard
    joins to the first. Where T goes back, a session begins, with which TensorBoard drops the points from its T on.

    A full disk is reported once and does not end the run.
    """

    def __init__(self, run_folder: Path, within: str = "", *, newest: float = math.inf) -> None:
        """`newest`: T of the newest point of earlier files, as far as that is known. Raises OSError."""
        folder = made_folder(run_folder / TENSORBOARD)
        folder = made_folder(folder / within) if within else folder
        # A name of its own: the writer replaces a file of the same second.
        self._writer = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        self._newest = newest
        self._is_failing = False

    def begin_session(self, global_steps: int) -> None:
        """Points of this T and later ones that are there are no part of the run."""
        self._newest = global_steps
        self._write(Event(wall_time=time.time(), step=global_steps, session_log=SessionLog(status=SessionLog.START)))

    def add(self, point: Iterable[tuple[str, float]], *, global_steps: int) -> None:
        """Append values at one T, each with its tag."""
        if global_steps < self._newest:
            self.begin_session(global_steps)
        self._newest = global_steps
        summary = Summary(value=(Summary.Value(tag=tag, simple_value=value) for tag, value in point))
        self._write(Event(wall_time=time.time(), step=global_steps, summary=summary))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # reported by then
            self._writer.close()

    def _write(self, event: Event) -> None:
        """What the disk refuses stays in the writer's buffer of 8 KiB for the next time; more is lost."""
        try:
            self._writer.write_event(event)
            self._writer.flush()
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.warning("%s: cannot be written, the run goes on without it: %s", TENSORBOARD, error.strerror)
            self._is_failing = True


class Summaries:
    """The summaries of one run, from its reports to the event file."""

    def __init__(self, folder: Path, *, global_steps: int | None = None) -> None:
        """`global_steps`: the T at which the run continues, if that is known. Raises OSError."""
        self._points, self._folder, self._file = SummaryPoints(), folder, EventFile(folder)
        self._evaluations: EventFile | None = None  # a file of its own, for a curve of its own in the same charts
        if global_steps is not None:
            self._file.begin_session(global_steps + 1)
        self._global_steps = 0  # at the last report

    def add(self, report: RecordReport) -> None:
        self._global_steps = report.global_steps
        self._write(self._points.add(report))

    def add_evaluation(self, row: EvaluationRow) -> None:
        point = row.metrics | {RETURN: row.mean_return}
        with contextlib.suppress(OSError):
            self._evaluations = self._evaluations or EventFile(self._folder, "evaluation")
            self._evaluations.add(point.items(), global_steps=row.global_steps)

    def close(self) -> None:
        """Add a point of the last reports: a short run may have no other."""
        self._write(self._points.rest())
        self._file.close()
        if self._evaluations is not None:
            self._evaluations.close()

    def _write(self, point: Mapping[str, float]) -> None:
        if point:
            self._file.add(point.items(), global_steps=self._global_steps)
