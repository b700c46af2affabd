"""
The curves of one run as columns: the form in which a page draws them.

The number of points is bounded. A table that is full drops every second of its points, so a run of a week is as quick
to draw as one of a minute.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

MOST_POINTS = 4000  # of a table; it is thinned to half of them
MOST_SENT = 1500  # of a table to a page


class MetricsPoint(msgspec.Struct):
    """A row of metrics.jsonl, as far as it is drawn."""

    time: float
    minutes: float
    global_steps: int
    mean_return_100: float | None = None
    steps_per_second: float = 0.0
    updates_per_second: float = 0.0
    staleness_recent: float = 0.0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    workers_alive: int = 0


class EpisodePoint(msgspec.Struct):
    """A row of episodes.jsonl, as far as it is drawn."""

    episode: int
    global_steps: int
    minutes: float
    episode_return: float
    length: float


class WorkerPoint(msgspec.Struct):
    """A row of workers.jsonl, as far as it is drawn."""

    time: float
    global_steps: int
    minutes: float
    meters: dict[str, float | None] = {}
    alive: bool = True


class Table:
    """Rows in order of T, in columns. A row that goes back replaces the rows beyond it: the run was resumed there."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: dict[str, Any]) -> None:
        while self._rows and self._rows[-1][self._order] > row[self._order]:
            self._rows.pop()
        self._rows.append(row)
        if len(self._rows) > MOST_POINTS:
            del self._rows[1:-1:2]

    def clear(self) -> None:
        self._rows.clear()

    def columns(self) -> dict[str, list[Any]]:
        """At most MOST_SENT rows spread evenly, the newest among them; a value that a row lacks is None."""
        step = max(1, -(-len(self._rows) // MOST_SENT))
        rows = self._rows[::-1][::step][::-1]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}


def mean_meters(meters: Iterable[Mapping[str, float | None]]) -> dict[str, float]:
    """The mean of each meter over the workers that have it."""
    values: dict[str, list[float]] = {}
    for one in meters:
        for name, value in one.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def rows_of_meters(points: Sequence[WorkerPoint]) -> list[dict[str, Any]]:
    """One row for all workers of the same moment: means over those that were alive."""
    moments: dict[float, list[WorkerPoint]] = {}
    for point in points:
        moments.setdefault(point.time, []).append(point)
    rows = []
    for together in moments.values():
        meters = mean_meters(point.meters for point in together if point.alive)
        if meters:
            rows.append({"global_steps": together[0].global_steps, "minutes": together[0].minutes, **meters})
    return rows
