"""
Summaries of a run for TensorBoard: which numbers, under which names, how often.

A style is a scheme of names. The x axis is T, the environment steps of all workers. A point is the mean over what was
reported since the point before it; what nobody reported in that time has none.
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
    """`names` gives each number its tag. `of_first`: of the first worker alone, or of all."""

    of_first: bool
    names: Mapping[str, str]


# Numbers are the meters that workers report, and episode_return, episode_length and frames_per_second.
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
    Makes points of reports: one in so many updates of the run, and no more than one in two seconds, so that a week of a
    fast run is some 100 MB.
    """

    def __init__(self, style: Style, *, every_updates: int, frames_per_step: int) -> None:
        self._style = style
        self._every_updates = every_updates
        self._frames_per_step = frames_per_step
        self._due: int | None = None  # at so many updates of the run
        self._due_minutes = 0.0
        self._seen: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, report: Reported) -> dict[str, float]:
        """The next point, by tag, if this report completes it; else nothing."""
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
        """The point of what was reported since the last; nothing if nothing was."""
        point = {self._style.names[name]: sum(seen) / len(seen) for name, seen in self._seen.items() if seen}
        self._seen.clear()
        return point


class SummaryFile:
    """
    An event file in RUN_DIR/tensorboard; a resumed run begins another one, which TensorBoard shows with the first.

    A disk that takes no more is told once; it does not end the run. (This is why the file is written here: the
    libraries' own writers have a thread that dies of it, and then a queue that fills up.)
    """

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        folder = run_folder / TENSORBOARD
        folder.mkdir(exist_ok=True)
        # TensorBoard knows its files by the middle of the name, and orders them by the time in it.
        path = folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = AppendedFile(path.open("ab", buffering=0), TENSORBOARD)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, point: Mapping[str, float], *, global_steps: int) -> None:
        """Write the values of a point, by tag."""
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
