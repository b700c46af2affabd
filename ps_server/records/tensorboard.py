"""
Summaries of a run for TensorBoard: which numbers, under which tags, how often.

A style is a scheme of tags. The x axis is T, the environment steps of all workers. A point is the mean of the values
reported since the previous point; a number without reports has no point.
"""

import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from common.run_folder.paths import TENSORBOARD
from ps_server.machine.effects import Reported
from ps_server.records.bounded_file import AppendedFile

SHORTEST_MINUTES = 2 / 60  # between two points


@dataclass(frozen=True)
class Style:
    """`names` maps each number to its tag. `of_first`: only the first worker's reports count."""

    of_first: bool
    names: Mapping[str, str]


# Numbers: the meters of reports, and episode_return, episode_length and frames_per_second.
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
        self._seen: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, report: Reported) -> dict[str, float]:
        """Add a report. Returns the point, by tag, that it completes; else an empty one."""
        if self._style.of_first and not report.is_first:
            return {}
        meters = dict(report.meters)
        if "steps_per_second" in meters:
            meters["frames_per_second"] = meters["steps_per_second"] * self._frames_per_step
        for name in self._style.names.keys() & meters.keys():
            self._seen[name].append(meters[name])
        self._seen["episode_return"] += [episode.episode_return for episode in report.episodes]
        self._seen["episode_length"] += [episode.length for episode in report.episodes]
        if self._due is None:
            self._due = report.updates + self._every_updates
        if report.updates < self._due or report.minutes < self._due_minutes:
            return {}
        self._due = report.updates + self._every_updates
        self._due_minutes = report.minutes + SHORTEST_MINUTES
        return self.rest()

    def rest(self) -> dict[str, float]:
        """The point of the reports since the last point; empty without any."""
        point = {self._style.names[name]: sum(seen) / len(seen) for name, seen in self._seen.items() if seen}
        self._seen.clear()
        return point


class SummaryFile:
    """
    An event file in RUN_DIR/tensorboard; a resumed run begins another, which TensorBoard joins to the first.

    A full disk is reported once and does not end the run. (In the libraries' own writers it kills a thread, whose queue
    then fills up.)
    """

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        folder = run_folder / TENSORBOARD
        folder.mkdir(exist_ok=True)
        # TensorBoard recognises its files by the middle of the name, and orders them by the time at its end.
        path = folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = AppendedFile(path.open("ab", buffering=0), TENSORBOARD)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, point: Mapping[str, float], *, global_steps: int) -> None:
        """Append a point, by tag."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.items()]
        self._write(Event(wall_time=time.time(), step=global_steps, summary=Summary(value=values)))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        self._file.add(_framed(event.SerializeToString()))


def _framed(data: bytes) -> bytes:
    """A TFRecord: length, checksum of the length, data, checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
