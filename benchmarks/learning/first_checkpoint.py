"""
The first checkpoint of a run that plays well: a figure without the window of 100 training games.

Each checkpoint that the run kept apart plays full games with greedy actions, the earliest first, until the mean of one
of them reaches the score. That happens after the run and costs it nothing. Checkpoints from before the first training
game with this score are left out: they would hardly pass, and if one did, the figure would only be smaller.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.learning.programs import evaluate
from common.run_folder.checkpoint_file import read_weights
from common.run_folder.jsonl import rows_in
from common.run_folder.paths import CHECKPOINTS, EPISODES, MILESTONES
from common.run_folder.run_rows import EpisodeRow

EVERY_EPISODES = 5  # from one checkpoint that is kept apart to the next
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
    flags = ["--greedy", "--episodes", str(games), "--seed", str(seed)]
    paths = list(_candidates(run, score))
    with ThreadPoolExecutor(at_once) as pool:
        for some in (paths[at : at + at_once] for at in range(0, len(paths), at_once)):
            results = pool.map(lambda path: evaluated(path, flags, result=path.with_suffix(".json")), some)
            for path, result in zip(some, list(results), strict=True):
                if result["mean"] >= score:
                    progress = read_weights(path)[3]["progress"]
                    at = progress["global_steps"], progress["minutes"]
                    return Good(*at, mean=result["mean"], distinct=result["distinct"])
    return None


def _candidates(run: Path, score: float) -> Iterator[Path]:
    """Checkpoints that were kept apart, from the first training game with this score on, the earliest first."""
    games = (row.episode for row in rows_in(run / EPISODES, EpisodeRow) if row.episode_return >= score)
    first = next(games, None)
    for path in sorted((run / CHECKPOINTS).glob(MILESTONES)):
        if first is not None and int(path.stem.rpartition("-")[2]) >= first:
            yield path
