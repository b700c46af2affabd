"""
The input of a tracker: points of numbers over T, and events, from the files of a run folder.

A point is a row of metrics.jsonl, with the means of the workers' meters, a game of episodes.jsonl, an evaluation of
evaluations.jsonl, or a row of logged.jsonl. What was sent is remembered beside them, so that a resumed run goes on
where the tracker is. No tracker is known here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ps_common.protocol.names import Count
from ps_common.run_folder.paths import EPISODES, EVALUATIONS, EVENTS, LOGGED, METRICS, write_whole
from ps_common.run_folder.run_rows import EpisodeRow, EvaluationRow, EventRow, LoggedRow, MetricsRow, RowsTail
from ps_common.settings.regular_file import content_of

R = TypeVar("R", MetricsRow, EvaluationRow, LoggedRow)

NUMBERS = (
    "version", "updates", "minutes", "steps_per_second", "updates_per_second", "learning_rate", "episodes",
    "mean_return_100", "best_mean_return_100", "staleness_mean", "staleness_recent", "gradient_norm", "duplicates",
    "checkpoint_version", "checkpoint_failures", "workers_alive",
)  # fmt: skip
UNTRACKED_METERS = {"steps_per_second", "gradient_norm"}  # of one worker; the run has its own
MOST_GAMES = 200  # points of one batch; of more games there are means
SUMMARY = (
    "global_steps",
    "updates",
    "minutes",
    "episodes",
    "mean_return_100",
    "best_mean_return_100",
    "best_evaluation",
)
SUMMARY_TEXTS = ("ending", "environment", "preset")


class Position(msgspec.Struct, kw_only=True):
    """The sent part of a run: everything up to these rows."""

    points: Count = 0
    time: float = 0.0  # of a row of metrics, in seconds since 1970
    evaluated_time: float = 0.0  # of an evaluation, in seconds since 1970
    logged_time: float = 0.0  # of the curves that a program has added, in seconds since 1970
    episode: Count = 0
    epoch: int = 0
    event: int = 0  # of that epoch


@dataclass(frozen=True)
class Point:
    """Numbers at one T; `time` is in seconds since 1970."""

    values: Mapping[str, float]
    global_steps: int
    time: float


@dataclass(frozen=True)
class Batch:
    """The new points and events."""

    points: Sequence[Point]
    events: Sequence[EventRow]


class Feed:
    """The rows of one run folder that one tracker has not got."""

    def __init__(self, folder: Path, position: Path) -> None:
        self._file = position
        self.position = _read(position)
        self._metrics = RowsTail(folder / METRICS, MetricsRow)
        self._evaluations = RowsTail(folder / EVALUATIONS, EvaluationRow)
        self._logged = RowsTail(folder / LOGGED, LoggedRow)
        self._episodes = RowsTail(folder / EPISODES, EpisodeRow)
        self._events = RowsTail(folder / EVENTS, EventRow)
        self.newest: MetricsRow | None = None  # row of metrics

    def read(self) -> Batch:
        """The points and events since the last call; none before the run has an id."""
        at = self.position
        rows, anew = self._metrics.read()
        metrics = [row for row in rows if row.run_id and row.phase != "standby"]
        self.newest = metrics[-1] if metrics else self.newest
        if self.newest is None:
            return Batch((), ())
        metrics = _unsent(metrics, anew, at.time)
        evaluations = _unsent(*self._evaluations.read(), at.evaluated_time)
        logged = _unsent(*self._logged.read(), at.logged_time)
        games = [row for row in self._episodes.read()[0] if row.episode > at.episode]
        events = [row for row in self._events.read()[0] if (row.epoch, row.number) > (at.epoch, at.event)]
        if metrics:
            at.time = max(at.time, metrics[-1].time)
        if evaluations:
            at.evaluated_time = max(at.evaluated_time, evaluations[-1].time)
        if logged:
            at.logged_time = max(at.logged_time, logged[-1].time)
        if games:
            at.episode = games[-1].episode
        if events:
            at.epoch, at.event = events[-1].epoch, events[-1].number
        points = [*map(_of_run, metrics)]
        of_program = [Point({row.name: row.value}, row.global_steps, row.time) for row in logged]
        of_evaluations = [Point(row.values(), row.global_steps, row.time) for row in evaluations]
        of_games = _of_games(games, points, fallback=at.time)
        return Batch([*points, *of_games, *of_evaluations, *of_program], events)

    def save_position(self) -> None:
        """All that was read was sent. Raises OSError."""
        write_whole(self._file, msgspec.json.encode(self.position).decode())


def _unsent(rows: list[R], anew: bool, time: float) -> list[R]:
    """Rows that were appended are new, whatever their time: the clock of a host may be behind that of another."""
    return [row for row in rows if row.time > time] if anew else rows


def _of_run(row: MetricsRow) -> Point:
    values = {name: value for name in NUMBERS if (value := getattr(row, name)) is not None}
    meters = {name: mean for name, mean in row.meters.items() if name not in UNTRACKED_METERS}
    of_workers = {name if "/" in name else f"worker_{name}": mean for name, mean in meters.items()}
    return Point(values | of_workers, row.global_steps, row.time)


def _of_games(rows: Sequence[EpisodeRow], timed: Sequence[Point], *, fallback: float) -> list[Point]:
    """One point a game, or a mean of several; its time is that of the first of `timed` that has its T."""
    size = -(-len(rows) // MOST_GAMES) or 1
    points = []
    later = sorted(timed, key=lambda point: point.global_steps)
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        games = sum(row.games for row in part)
        values = {
            "episode_return": sum(row.episode_return * row.games for row in part) / games,
            "episode_length": sum(row.length * row.games for row in part) / games,
        }
        steps = part[-1].global_steps
        points.append(Point(values, steps, next((at.time for at in later if at.global_steps >= steps), fallback)))
    return points


def _read(path: Path) -> Position:
    try:
        return msgspec.json.decode(content_of(path), type=Position)
    except (OSError, ValueError, RecursionError):
        return Position()


def summary_of(row: MetricsRow) -> dict[str, Any]:
    """The result of a run as it stands: numbers and texts, without those that there are not."""
    values = {name: getattr(row, name) for name in (*SUMMARY, *SUMMARY_TEXTS)} | {"failed": row.failed or None}
    return {name: value for name, value in values.items() if value not in (None, "")}
