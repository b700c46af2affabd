"""
Summaries of a run for TensorBoard: which numbers, under which tags, how often, and the event file that has them.

A style is a scheme of tags. The x axis is T, the environment steps of all workers. A point is the mean of the values
reported since the previous point; a number without reports has no point. Histograms of returns and staleness, and the
newest GIF of a game, are added more seldom. The file is written here because a full disk kills the thread of the
libraries' own writers, whose queue then fills up.
"""

import contextlib
import itertools
import math
import struct
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import make_histogram

from ps_common.run_folder.paths import GAME_GIFS, GIFS, TENSORBOARD
from ps_common.run_folder.run_rows import EvaluationRow
from ps_common.settings.regular_file import content_of, made_folder, opened_to_write
from ps_common.settings.run_spec import RunSpec
from ps_server.records.bounded_file import AppendedFile
from ps_server.state.effects import RecordReport

SHORTEST_MINUTES = 2 / 60  # between two points
HISTOGRAM_MINUTES = 0.5  # between two histograms
GIF_MINUTES = 60.0  # between two GIFs, which take megabytes
MOST_GIF_BYTES = 8 * 2**20
MOST_VALUES = 10_000  # a histogram is of the newest values
RETURNS, STALENESS, GAME = "Histograms/Returns", "Histograms/Staleness", "Game"
BINS = 30  # of a histogram
Value = float | Sequence[float] | bytes  # a scalar, the values of a histogram (at least one), or a GIF


@dataclass(frozen=True)
class Style:
    """`names` maps each number to its tag. `of_first`: only the first worker's reports count."""

    of_first: bool
    names: Mapping[str, str]


# Numbers: the meters of reports, and episode_return, episode_length and frames_per_second. A meter whose name has a
# slash is its own tag.
STYLES = {
    "perf": Style(
        of_first=False,
        names={
            "episode_return": "Perf/Reward",
            "episode_length": "Perf/Length",
            "value": "Perf/Value",
            "value_loss": "Losses/Value Loss",
            "policy_loss": "Losses/Policy Loss",
            "entropy": "Losses/Entropy",
            "gradient_norm": "Losses/Grad Norm",
            "weight_norm": "Losses/Var Norm",
        },
    ),
    "model": Style(
        of_first=True,
        names={
            "loss": "model/loss",
            "policy_loss": "model/policy_loss",
            "value_loss": "model/value_loss",
            "entropy": "model/entropy",
            "weight_norm": "model/global_norm",
            "gradient_norm": "model/gradient_global_norm",
            "episode_length": "environment/episode_length",
            "episode_return": "environment/episode_reward",
            "frames_per_second": "environment/fps",
        },
    ),
}


class SummaryPoints:
    """
    Makes points of reports: one every `every_updates` updates of the run, at most one in two seconds, so that a week of
    a fast run takes about 100 MB.
    """

    def __init__(self, style: Style, *, every_updates: int, frames_per_step: int) -> None:
        self._style = style
        self._every_updates = every_updates
        self._frames_per_step = frames_per_step
        self._due: int | None = None  # at this number of updates
        self._due_minutes = 0.0
        self._seen: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))  # sum and count

    def add(self, report: RecordReport) -> dict[str, float]:
        """Add a report. Returns the point, by tag, that it completes; else an empty one."""
        if self._style.of_first and not report.is_first:
            return {}
        meters = dict(report.meters)
        if "steps_per_second" in meters:
            meters["frames_per_second"] = meters["steps_per_second"] * self._frames_per_step
        for name, value in meters.items():
            if name in self._style.names or "/" in name:
                self._add(name, value)
        for episode in report.episodes:
            self._add("episode_return", episode.episode_return)
            self._add("episode_length", episode.length)
        if self._due is None:
            self._due = report.updates + self._every_updates
        if report.updates < self._due or report.minutes < self._due_minutes:
            return {}
        self._due = report.updates + self._every_updates
        self._due_minutes = report.minutes + SHORTEST_MINUTES
        return self.rest()

    def rest(self) -> dict[str, float]:
        """The point of the reports since the last point; empty without any."""
        point = {self._style.names.get(name, name): total / count for name, (total, count) in self._seen.items()}
        self._seen.clear()
        return point

    def _add(self, name: str, value: float) -> None:
        total, count = self._seen[name]
        self._seen[name] = total + value, count + 1


class SummaryHistograms:
    """Makes histograms of the returns and the staleness of reports, at most two a minute: a week takes about 20 MB."""

    def __init__(self) -> None:
        self._due_minutes: float | None = None
        self._returns: deque[float] = deque(maxlen=MOST_VALUES)
        self._staleness: deque[float] = deque(maxlen=MOST_VALUES)

    def add(self, report: RecordReport) -> dict[str, list[float]]:
        """Add a report. Returns the values of each histogram that is due, by tag."""
        self._returns.extend(episode.episode_return for episode in report.episodes)
        self._staleness.extend(report.staleness)
        if self._due_minutes is None:
            self._due_minutes = report.minutes + HISTOGRAM_MINUTES
        if report.minutes < self._due_minutes:
            return {}
        self._due_minutes = report.minutes + HISTOGRAM_MINUTES
        return self.rest()

    def rest(self) -> dict[str, list[float]]:
        """The values since the last histograms, by tag; empty without any."""
        seen = {RETURNS: list(self._returns), STALENESS: list(self._staleness)}
        self._returns.clear()
        self._staleness.clear()
        return {tag: values for tag, values in seen.items() if values}


class GameGifs:
    """Finds the newest GIF in the run folder, at most one an hour."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder / GIFS
        self._due_minutes = 0.0
        self._last = ""

    def due(self, *, minutes: float) -> dict[str, bytes]:
        """The newest GIF, by tag, if the last one is an hour old."""
        if minutes < self._due_minutes:
            return {}
        if found := self.rest():
            self._due_minutes = minutes + GIF_MINUTES
        return found

    def rest(self) -> dict[str, bytes]:
        """The newest GIF, by tag, unless it is the last one or not complete yet."""
        newest = max(self._folder.glob(GAME_GIFS), default=None)
        if newest is None or newest.name == self._last:
            return {}
        with contextlib.suppress(OSError):
            gif = content_of(newest, most_bytes=MOST_GIF_BYTES)
            if gif.startswith(b"GIF8") and gif.endswith(b";"):
                self._last = newest.name
                return {GAME: gif}
        return {}


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
        # TensorBoard recognises its files by the middle of the name, and orders them by the time at its end.
        path = folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = AppendedFile(opened_to_write(path), TENSORBOARD)
        self._newest = newest
        self._tags: set[str] = set()  # that have a point at the newest T
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def begin_session(self, global_steps: int) -> bool:
        """Points of this T and later ones that are there are no part of the run. Returns whether that is written."""
        is_written = self._write(
            Event(wall_time=time.time(), step=global_steps, session_log=SessionLog(status=SessionLog.START))
        )
        if is_written:
            self._newest = global_steps
            self._tags.clear()
        return is_written

    def add(self, point: Iterable[tuple[str, Value]], *, global_steps: int) -> None:
        """Append values at one T, each with its tag; a tag that has one at this T keeps it."""
        if global_steps < self._newest and not self.begin_session(global_steps):
            return
        if global_steps > self._newest:
            self._tags.clear()
        self._newest = global_steps
        new = [(tag, value) for tag, value in point if tag not in self._tags]
        self._tags.update(tag for tag, _ in new)
        if new:
            summary = Summary(value=itertools.starmap(_tagged, new))
            self._write(Event(wall_time=time.time(), step=global_steps, summary=summary))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> bool:
        return self._file.add(_framed(event.SerializeToString())) > 0


def _tagged(tag: str, value: Value) -> Summary.Value:
    match value:
        case bytes():
            width, height = struct.unpack("<HH", value[6:10])
            image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=value)
            return Summary.Value(tag=tag, image=image)
        case float() | int():
            return Summary.Value(tag=tag, simple_value=value)
        case _:
            array = np.asarray(value, np.float64)
            return Summary.Value(tag=tag, histo=make_histogram(array, _edges(array)))


def _edges(values: np.ndarray) -> np.ndarray:
    """Of equal bins from the lowest to the highest value, wide enough to differ where all values are nearly equal."""
    low, high = values.min(), values.max()
    return np.linspace(low, max(high, low + 1e-6 * max(1.0, abs(low))), BINS + 1)


def _framed(data: bytes) -> bytes:
    """A TFRecord: length, checksum of the length, data, checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


class Summaries:
    """The summaries of one run, from its reports to the event file."""

    def __init__(self, folder: Path, spec: RunSpec, *, global_steps: int | None = None) -> None:
        """`global_steps`: the T that the run goes on from, if that is known. Raises OSError."""
        style = STYLES[spec.records.summaries]
        self._returns = style.names["episode_return"]
        every, frames = spec.records.summary_every_updates, spec.environment.frames_per_step
        self._points = SummaryPoints(style, every_updates=every, frames_per_step=frames)
        self._histograms = SummaryHistograms()
        self._gifs = GameGifs(folder) if spec.records.gif_every_episodes else None
        self._folder, self._file = folder, EventFile(folder)
        self._evaluations: EventFile | None = None  # beside the other, as a curve of its own in the same charts
        if global_steps is not None:
            self._file.begin_session(global_steps + 1)
        self._global_steps = 0  # at the last report

    def add(self, report: RecordReport) -> None:
        self._global_steps = report.global_steps
        scalars = self._points.add(report)
        gifs = self._gifs.due(minutes=report.minutes) if self._gifs is not None and scalars else {}
        self._write(scalars, self._histograms.add(report), gifs)

    def add_evaluation(self, row: EvaluationRow) -> None:
        """A point at the T of the weights."""
        point = row.metrics | {self._returns: row.mean_return}
        with contextlib.suppress(OSError):
            self._evaluations = self._evaluations or EventFile(self._folder, "evaluation")
            self._evaluations.add(point.items(), global_steps=row.global_steps)

    def close(self) -> None:
        """Add a point of the last reports: a short run may have no other."""
        gifs = self._gifs.rest() if self._gifs is not None else {}
        self._write(self._points.rest(), self._histograms.rest(), gifs)
        self._file.close()
        if self._evaluations is not None:
            self._evaluations.close()

    def _write(self, *tagged: Mapping[str, Value]) -> None:
        if any(tagged):
            self._file.add(itertools.chain(*(one.items() for one in tagged)), global_steps=self._global_steps)
