"""The rows of mujoco.py, and their page."""

from collections.abc import Callable, Sequence
from statistics import mean

import msgspec
import numpy as np

from benchmarks.dear.curves import Point

OURS, THEIRS = "ps-rl", "Stable-Baselines3"
MARKS = 50_000  # steps between two rows of a table
MINUTES = 5
LEAST_SEEDS = 2  # of each side, for a verdict

# Written before the first run.
RULE = """\
# Hopper and HalfCheetah: SAC beside Stable-Baselines3's

`make dear-mujoco`. ps-rl: the presets `hopper-sac` and `half-cheetah-sac`, two workers with one environment each and a
server, one thread a process. Stable-Baselines3: one process with one environment, and of one and two threads those with
which an update takes less time here. Both: hidden layers of 256 and 256, batch 256, Adam at 3e-4, τ 0.005, discount
0.99, one update to an environment step over all workers, the same steps before the first update. Each run has the
machine, two cores, to itself, where the table does not say "shared"; the sides take turns.

The rule, written before the first run:

- The score at a mark is the mean of the last ten training games that have ended by then; both sides sample in them.
- A cell is the mean over the seeds, with the least and the greatest of them. One side is ahead at a mark where its
  whole interval lies above the other's; where they overlap, these seeds show no difference. One seed decides nothing.
- The sides are compared at the last mark of equal steps, and at the last mark of equal minutes that every run of both
  sides has reached. Minutes count from the command on, with all starts.
- Runs that shared the machine with other programs are compared at equal steps alone: their minutes are those of the
  other programs too.
- Every run counts. None is left out; one is repeated only if a program's error ended it before its end.
- Beside that, without a verdict: ten games with the mean action of the last weights.
"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended."""

    side: str
    environment: str
    seed: int
    steps: int
    learning_starts: int
    threads: int  # of the network, in each process
    minutes: float  # from the command on, without the greedy games
    curve: list[Point]
    greedy: list[float]  # scores of the last weights
    busy_before: float  # per cent of the processors before the run
    shared: bool = False  # whether other programs ran on the machine meanwhile
    date: str

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """What no other row has."""
        return self.side, self.environment, self.seed, self.steps, self.learning_starts

    def score_at(self, steps: int) -> float | None:
        """The score at a point of the curve."""
        return next((point.score for point in self.curve if point.steps == steps), None)

    def score_after(self, minutes: float) -> float | None:
        """The score at this minute, between two points in a straight line; None: there is none, or the run was over."""
        known = [(point.minutes, point.score) for point in self.curve if point.score is not None]
        if not known or not known[0][0] <= minutes <= known[-1][0]:
            return None
        return float(np.interp(minutes, [when for when, _ in known], [score for _, score in known]))


def page_of(rows: Sequence[Row]) -> str:
    """The page."""
    parts = [RULE]
    for environment in dict.fromkeys(row.environment for row in rows):
        mine = [row for row in rows if row.environment == environment]
        parts.append(f"## {environment}\n")
        for steps in sorted({row.steps for row in mine}, reverse=True):
            parts += _comparison(steps, [row for row in mine if row.steps == steps])
    return "\n".join(parts)


def _comparison(steps: int, rows: Sequence[Row]) -> list[str]:
    """Runs of one length."""
    units = ["steps"] if any(row.shared for row in rows) else ["steps", "minutes"]
    tables = [_table(unit, rows) for unit in units]
    return [f"### Runs of {steps:,} steps\n", _verdicts(units, rows), *tables, _runs(rows)]


def _marks(unit: str, rows: Sequence[Row]) -> tuple[list[int], Callable[[Row, int], float | None]]:
    if unit == "steps":
        points = {point.steps for row in rows for point in row.curve}
        return sorted(mark for mark in points if mark % MARKS == 0) or sorted(points), Row.score_at
    return list(range(MINUTES, int(max(row.minutes for row in rows)) + 1, MINUTES)), Row.score_after


def _both(rows: Sequence[Row], score_at: Callable[[Row, int], float | None], mark: int) -> list[list[float]]:
    """The scores of each side at a mark; [] where one of its runs has none."""
    of_sides = [[score_at(row, mark) for row in rows if row.side == side] for side in (OURS, THEIRS)]
    return [[] if None in scores else [score for score in scores if score is not None] for scores in of_sides]


def _table(unit: str, rows: Sequence[Row]) -> str:
    marks, score_at = _marks(unit, rows)
    lines = [f"| {unit} | {OURS} | {THEIRS} |", "|---|---|---|"]
    for mark in marks:
        lines.append(f"| {mark:,} | {' | '.join(map(_cell, _both(rows, score_at, mark)))} |")
    return "\n".join([*lines, ""])


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return "–"
    interval = f" ({min(scores):,.0f} to {max(scores):,.0f})" if len(scores) > 1 else ""
    return f"{mean(scores):,.0f}{interval}".replace("-", "−")


def _verdicts(units: Sequence[str], rows: Sequence[Row]) -> str:
    """By the rule, at the last mark that both sides have."""
    lines = []
    for unit in units:
        marks, score_at = _marks(unit, rows)
        for mark in reversed(marks):
            ours, theirs = _both(rows, score_at, mark)
            if ours and theirs:
                lines.append(f"At {mark:,} {unit}: {_verdict(ours, theirs)}.")
                break
    return "\n".join([*lines, ""])


def _verdict(ours: Sequence[float], theirs: Sequence[float]) -> str:
    both = f"{OURS} {_cell(ours)}, {THEIRS} {_cell(theirs)}"
    if min(len(ours), len(theirs)) < LEAST_SEEDS:
        return f"{both}: one seed decides nothing"
    if min(ours) > max(theirs):
        return f"{both}: {OURS} is ahead"
    if max(ours) < min(theirs):
        return f"{both}: {THEIRS} is ahead"
    return f"{both}: these seeds show no difference"


def _runs(rows: Sequence[Row]) -> str:
    lines = ["| run | threads | minutes | steps/s | last ten games | ten games with the mean action | machine | date |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (row.side, row.seed)):
        last = next((point.score for point in reversed(row.curve) if point.score is not None), None)
        shown = "–" if last is None else f"{last:,.0f}"
        run, rate = f"{row.side}, seed {row.seed}", row.steps / row.minutes / 60
        machine = "shared" if row.shared else f"{row.busy_before:.0f} % busy before"
        cells = [run, row.threads, f"{row.minutes:.1f}", f"{rate:.0f}", shown, _cell(row.greedy), machine, row.date]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])
