"""The games of a run as a curve of the mean of the last ten: of a run of rl-cluster, and of a peer's program."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import mean

import msgspec
import numpy as np

from ps_common.run_folder.paths import EPISODES
from ps_common.run_folder.run_rows import EpisodeRow, rows_in

GAMES = 10


class Game(msgspec.Struct, frozen=True, array_like=True):
    """A full game of training."""

    steps: int  # of all workers, when it ended
    minutes: float  # since the command was given
    score: float


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A point of a curve."""

    steps: int
    minutes: float
    score: float | None  # mean of the last ten games that have ended by then; None: fewer have


def games_of(run_folder: Path, start_minutes: float = 0.0) -> list[Game]:
    """The games of a run of rl-cluster, whose minutes begin `start_minutes` after the command."""
    rows = rows_in(run_folder / EPISODES, EpisodeRow)
    games = [Game(row.global_steps, start_minutes + row.minutes, row.episode_return) for row in rows]
    return sorted(games, key=lambda game: game.steps)


def means(games: Sequence[Game]) -> Iterator[tuple[int, float]]:
    """The steps when each game from the tenth on has ended, and the mean of the last ten."""
    for end in range(GAMES, len(games) + 1):
        yield games[end - 1].steps, mean(game.score for game in games[end - GAMES : end])


def crossing(games: Sequence[Game], goal: float) -> int | None:
    """The steps when ten games first have the goal in the mean."""
    return next((steps for steps, score in means(games) if score >= goal), None)


def curve(games: Sequence[Game], *, start_minutes: float, end: Point, every: int) -> list[Point]:
    """Points every so many steps, to the end of the run."""
    steps, minutes = (
        [first, *(getattr(game, name) for game in games), getattr(end, name)]
        for name, first in (("steps", 0), ("minutes", start_minutes))
    )
    known = list(means(games))
    points = []
    for mark in range(every, end.steps + 1, every):
        ended = bisect_right(known, mark, key=itemgetter(0))
        score = known[ended - 1][1] if ended else None
        points.append(Point(mark, round(float(np.interp(mark, steps, minutes)), 3), score))
    return points
