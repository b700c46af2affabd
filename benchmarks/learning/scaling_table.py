"""
The rows of scaling.py as a table of speed-ups with intervals, and as curves of score against all workers' steps.

A method's learning rate is chosen for each number of workers, by the mean score over the whole run of the first two
seeds. The other seeds alone make the figures, so that the choice makes none of them look better. The goal of a (game,
method) is a share of the best mean score of one worker; the paper has a fixed score for each game.
"""

import math
import random
import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, pyplot
from rich.table import Table

GOAL_SHARE = 0.75
CHOOSING = (0, 1)  # the seeds that chose the learning rate
DRAWS = 2000  # of the bootstrap over seeds
Row = dict[str, Any]


def table(rows: Sequence[Row]) -> Table:
    """For each (game, method, workers): the best learning rate, and the figures of its runs."""
    of_cell = ("game", "method", "workers", "learning rate", "seeds", "last score")
    shown = Table(*of_cell, "goal", "steps to it", "speed-up", "mean score")
    for (game, method), of_method in grouped(rows, "game", "method"):
        best = {workers[0]: measured(group) for workers, group in grouped(of_method, "workers")}
        if not best.get(1):
            continue
        goal = goal_of(best[1])
        for workers, runs in best.items():
            if not runs:
                continue
            steps = steps_to(runs, goal)
            last = statistics.mean(run["scores"][-1] for run in runs)
            cells = [game, method, str(workers), f"{runs[0]['learning_rate']:g}", str(len(runs)), f"{last:.1f}"]
            cells += [f"{goal:.1f}", "not reached" if steps is None else f"{steps:,.0f}"]
            shown.add_row(*cells, speed_up_in_words(workers, best[1], runs), mean_in_words(runs))
    return shown


def ranked(rows: Sequence[Row]) -> list[list[Row]]:
    """
    The runs of each learning rate, the best rate first, by the mean score over the whole run.

    A rate with more seeds is better than one with fewer, whose further seeds were not run because it had lost.
    """
    rates = [runs for _, runs in grouped(rows, "learning_rate")]
    return sorted(rates, key=lambda runs: (len(runs), statistics.mean(_mean_curve(runs))), reverse=True)


def measured(rows: Sequence[Row]) -> list[Row]:
    """The runs of the best learning rate with the seeds that had no part in its choice, in the order of the seeds."""
    return sorted((run for run in ranked(rows)[0] if run["seed"] not in CHOOSING), key=lambda run: run["seed"])


def goal_of(alone: Sequence[Row]) -> float:
    """The score that one worker and several are to reach."""
    return GOAL_SHARE * max(_mean_curve(alone))


def steps_to(runs: Sequence[Row], goal: float) -> float | None:
    """Steps at which the mean curve of the runs first has the goal, between evaluations in a straight line."""
    steps, scores = [0.0, *np.mean([run["steps"] for run in runs], axis=0)], [0.0, *_mean_curve(runs)]
    for number in range(1, len(scores)):
        if scores[number] >= goal:
            share = (goal - scores[number - 1]) / (scores[number] - scores[number - 1])
            return float(steps[number - 1] + min(1.0, max(0.0, share)) * (steps[number] - steps[number - 1]))
    return None


def speed_up_in_words(workers: int, alone: Sequence[Row], together: Sequence[Row]) -> str:
    """
    n · steps(1) / steps(n), and its 95 % interval over seeds that are drawn anew with replacement; ∞: not alone.

    A draw has the same seeds on both sides, as far as both have them, and the goal of its own seeds.
    """
    goal = goal_of(alone)
    first, others = steps_to(alone, goal), steps_to(together, goal)
    if first is None or others is None:
        return "–"
    pairs = [(one, other) for one in alone for other in together if one["seed"] == other["seed"]]
    chance = random.Random(0)
    drawn: list[float] = []
    for _ in range(DRAWS):
        drawn_alone, drawn_together = zip(*chance.choices(pairs, k=len(pairs)), strict=True)
        goal = goal_of(drawn_alone)
        one, many = steps_to(drawn_alone, goal), steps_to(drawn_together, goal)
        if one is not None and many is not None:
            drawn.append(workers * one / many)
        elif one is not None or many is not None:  # a draw in which neither comes to the goal compares nothing
            drawn.append(math.inf if one is None else 0.0)
    low, high = np.percentile(drawn, [2.5, 97.5], method="nearest")
    return f"{workers * first / others:.1f} ({low:.1f} to {high:.1f})".replace("inf", "∞")


def mean_in_words(runs: Sequence[Row]) -> str:
    """The mean score over the whole run, and its standard error over the seeds."""
    means = [statistics.mean(run["scores"]) for run in runs]
    error = f" ± {statistics.stdev(means) / math.sqrt(len(means)):.2f}" if len(means) > 1 else ""
    return f"{statistics.mean(means):.2f}{error}"


def plot(rows: Sequence[Row], path: Path) -> None:
    """A row of panels for each game, a panel for each method: mean score of the best learning rate against steps."""
    if all(row["seed"] in CHOOSING for row in rows):
        return
    games, methods = (sorted({row[name] for row in rows}) for name in ("game", "method"))
    numbers = sorted({row["workers"] for row in rows})
    colours = colormaps["viridis"](np.linspace(0.0, 0.9, len(numbers)))
    figure, axes = pyplot.subplots(
        len(games),
        len(methods),
        figsize=(3.6 * len(methods), 3 * len(games)),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for (game, method), of_method in grouped(rows, "game", "method"):
        axis = axes[games.index(game), methods.index(method)]
        for (workers,), group in grouped(of_method, "workers"):
            if not (runs := measured(group)):
                continue
            thousands = np.mean([run["steps"] for run in runs], axis=0) / 1000
            axis.plot(thousands, _mean_curve(runs), color=colours[numbers.index(workers)], label=str(workers))
        axis.set_title(f"{method}, {game.rpartition('/')[2]}")
    axes[0, 0].legend(title="workers")
    figure.supxlabel("thousand steps of all workers")
    figure.supylabel("mean score of evaluation games")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _mean_curve(runs: Sequence[Row]) -> list[float]:
    curve: list[float] = np.mean([run["scores"] for run in runs], axis=0).tolist()
    return curve


def grouped(rows: Sequence[Row], *keys: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Groups of rows with the same values of the keys, in the order of these."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in keys)

    return [(values, list(group)) for values, group in groupby(sorted(rows, key=key), key=key)]
