"""
The first checkpoint of a run that plays well: a figure without the window of 100 training games.

Each checkpoint that the run kept apart plays full games with greedy actions, the earliest first, until the mean of one
of them reaches the score. That happens after the run and costs it nothing. Checkpoints from before the first training
game with this score are left out: they would hardly pass, and if one did, the figure would only be smaller.

Greedy games of a bad checkpoint may go on to the time limit. So each checkpoint plays a fifth of its games first. It is
dismissed if its mean cannot reach the score even with the best training game's score in all of the others.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.learning.programs import evaluate
from ps_common.run_folder.checkpoint_file import read_weights
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import CHECKPOINTS, EPISODES, MILESTONES, numbers_in
from ps_common.run_folder.run_rows import EpisodeRow, rows_in

EVERY_EPISODES = 5  # from one checkpoint that is kept apart to the next
FIRST_SHARE = 5  # one in so many games is played before the others
KEEPING = ("--checkpoint-every-episodes", str(EVERY_EPISODES), "--keep-checkpoints", "100000")  # flags of such a run


class Evaluate(Protocol):
    """Full games with a checkpoint, and their result as rl-eval writes it."""

    def __call__(self, checkpoint: Path, flags: Sequence[str], *, result: Path) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Good:
    """A checkpoint whose games reached the score."""

    steps: int
    minutes: float  # of training
    mean: float
    distinct: int  # games that are no copies of others


def first_good(
    run: Path,
    *,
    score: float,
    games: int,
    seed: int,
    evaluated: Evaluate = evaluate,
    at_once: int = os.cpu_count() or 1,
) -> Good | None:
    """The first checkpoint of the run whose mean of so many greedy games is at least `score`; None if none is."""
    trained = list(rows_in(run / EPISODES, EpisodeRow))
    best = max((row.episode_return for row in trained), default=score)
    first = max(1, games // FIRST_SHARE)

    def played(path: Path, episodes: int) -> dict[str, Any]:
        flags = ["--greedy", "--episodes", str(episodes), "--seed", str(seed)]
        return evaluated(path, flags, result=path.with_suffix(f".{episodes}.json"))

    def good(path: Path) -> Good | None:
        if first * played(path, first)["mean"] + (games - first) * best < games * score:
            return None
        result = played(path, games)
        progress = read_weights(path)[3].progress
        at = progress.global_steps, progress.minutes
        return Good(*at, mean=result["mean"], distinct=result["distinct"]) if result["mean"] >= score else None

    with ThreadPoolExecutor(at_once) as pool:
        try:
            return next(filter(None, pool.map(good, _candidates(run, trained, score))), None)
        finally:
            pool.shutdown(cancel_futures=True)


def _candidates(run: Path, trained: Sequence[EpisodeRow], score: float) -> Iterator[Path]:
    """Checkpoints that were kept apart, from the first training game with this score on, the earliest first."""
    first = next((row.episode for row in trained if row.episode_return >= score), None)
    for path in reversed(newest_first(run / CHECKPOINTS, MILESTONES)):
        if first is not None and numbers_in(path.name)[0] >= first:
            yield path
