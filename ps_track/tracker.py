"""The interface of a tracker, and the description of the run that it gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ps_common.run_folder.run_rows import EventRow, MetricsRow
from ps_track.feed import Point

PROJECT = "ps-rl"  # a run of an experiment belongs to that experiment's group
SUMMARY = ("global_steps", "updates", "minutes", "episodes", "mean_return_100", "best_mean_return_100")
SUMMARY_TEXTS = ("ending", "environment", "preset")


@dataclass(frozen=True)
class TrackedRun:
    """The run, as a tracker names it. A resumed run, and one that a standby has taken over, has the same `run_id`."""

    run_id: str
    name: str
    experiment: str
    folder: Path
    settings: Mapping[str, Any]  # flat: {"algorithm.unroll_length": 20}


class Tracker(Protocol):
    """One run at one tracker. Every method may raise what the tracker's package raises."""

    def begin(self, run: TrackedRun) -> None:
        """Begin the run, or go on with it."""

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        """Send points, numbered from `first` on, and events."""

    def finish(self, summary: Mapping[str, Any]) -> str:
        """The run is over for now. Returns where it is to be found."""


def summary_of(row: MetricsRow) -> dict[str, Any]:
    """The result of a run as it stands: numbers and texts, without those that there are not."""
    values = {name: getattr(row, name) for name in (*SUMMARY, *SUMMARY_TEXTS)}
    return {name: value for name, value in values.items() if value not in (None, "")}
