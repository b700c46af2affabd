"""
`make seeds`: one preset with several seeds, one run after another, and how soon each came to a score.

A row has the steps and minutes until the last 100 training games averaged the score, with the minutes in brackets that
the programs took to start, and those of the first checkpoint whose greedy games average it (first_checkpoint.py). The
best checkpoint then plays with sampled actions. Flags after `--` go
to rl-cluster, so a recipe is compared with the preset's own in one command. Minutes mean something on a machine that
does nothing else; the table has the load beside them.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from benchmarks.learning.first_checkpoint import KEEPING, Good, first_good
from benchmarks.learning.programs import Trained, evaluate, new_folder, train
from ps_common.errors import PsRlError, SettingsError
from ps_common.settings.run_files import load_preset

TABLE, ROWS = "table.md", "rows.json"
SEED_OF_GAMES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One preset with several seeds: how soon each run comes to a score."""

    folder: Path | None = None
    """new folder for the runs, the table and the rows; runs/PRESET-seeds-DATE when not given"""
    preset: str = "pong"
    """the preset; other flags of rl-cluster follow after --"""
    seeds: int = 10
    """number of runs"""
    first_seed: int = 0
    """seed of the first run; each next one has the next number"""
    workers: int = 2
    """workers of a run"""
    score: float | None = None
    """the score to reach; that of the preset when not given"""
    games: int = 30
    """games of an evaluation"""


@dataclass(frozen=True)
class Row:
    """The result of one seed. Minutes are of training, after the start; None: the score was not reached."""

    seed: int
    steps: int  # when the run ended: at the score, or at its limit
    minutes: float
    start_minutes: float  # before training, until the run had its first weights
    reached_minutes: float | None  # until the last 100 training games averaged the score
    good_steps: int | None  # of the first checkpoint whose greedy games averaged it
    good_minutes: float | None
    good_distinct: int | None  # of these games, so many are no copies of others
    sampled: float  # mean of the best checkpoint's games with sampled actions
    steps_per_second: float
    load: float  # of the machine in the last minute of the run


def main(flags: Flags, of_the_run: Sequence[str]) -> int:
    score = flags.score if flags.score is not None else load_preset(flags.preset).budget.until_return
    if score is None:
        raise SettingsError(f"--score: the preset {flags.preset} has no score of its own; give one")
    folder = new_folder(flags.folder, f"{flags.preset}-seeds")
    rows: list[Row] = []
    for seed in range(flags.first_seed, flags.first_seed + flags.seeds):
        rows.append(measured(folder / f"seed-{seed}", flags, score, seed, of_the_run))
        (folder / ROWS).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        (folder / TABLE).write_text(table(rows, preset=flags.preset, score=score, flags=of_the_run))
        print((folder / TABLE).read_text(), flush=True)
    return 0


def measured(folder: Path, flags: Flags, score: float, seed: int, of_the_run: Sequence[str]) -> Row:
    """Train with this seed, then evaluate what the run kept."""
    given = ["--preset", flags.preset, "--until-return", str(score), *of_the_run]
    run = train(folder, [*given, "--workers", str(flags.workers), "--seed", str(seed), *KEEPING])
    load = os.getloadavg()[0]
    good = first_good(folder, score=score, games=flags.games, seed=SEED_OF_GAMES)
    playing = ["--episodes", str(flags.games), "--seed", str(SEED_OF_GAMES)]
    sampled = evaluate(folder, playing, result=folder.with_name(f"{folder.name}-sampled.json"))
    return row_of(run, good, seed=seed, sampled=sampled["mean"], load=load)


def row_of(run: Trained, good: Good | None, *, seed: int, sampled: float, load: float) -> Row:
    return Row(
        seed=seed,
        steps=run.steps,
        minutes=run.minutes,
        start_minutes=run.start_minutes,
        reached_minutes=run.minutes_to_target,
        good_steps=None if good is None else good.steps,
        good_minutes=None if good is None else good.minutes,
        good_distinct=None if good is None else good.distinct,
        sampled=sampled,
        steps_per_second=run.steps_per_second,
        load=load,
    )


def table(rows: Sequence[Row], *, preset: str, score: float, flags: Sequence[str]) -> str:
    """Markdown: a row for each seed, then medians and worst. A run that did not reach the score counts as the worst."""
    recipe = f"`{preset} {' '.join(flags)}`" if flags else f"`{preset}`"
    head = [f"steps to a mean of {score:g}", "minutes (to start)", "first good checkpoint: steps", "minutes"]
    head += ["distinct games", "sampled", "steps/s"]
    lines = [recipe, "", f"| seed | {' | '.join(head)} | load |", f"|{'---|' * (len(head) + 2)}"]
    for row in rows:
        reached = row.reached_minutes is not None
        cells = [
            str(row.seed),
            f"{row.steps:,}" if reached else f"not in {row.steps:,}",
            f"{_number(row.reached_minutes) if reached else f'not in {row.minutes:.2f}'} ({row.start_minutes:.3f})",
            "–" if row.good_steps is None else f"{row.good_steps:,}",
            _number(row.good_minutes),
            "–" if row.good_distinct is None else str(row.good_distinct),
            f"{row.sampled:.1f}",
            f"{row.steps_per_second:,.0f}",
            f"{row.load:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [_summary("median", statistics.median, rows), _summary("worst", max, rows)]
    return "\n".join(lines) + "\n"


def _summary(name: str, of: Callable[[list[float]], float], rows: Sequence[Row]) -> str:
    """A line with one number for each column; "not" where it is that of runs that did not reach the score."""
    steps = [row.steps if row.reached_minutes is not None else None for row in rows]
    columns: list[Sequence[float | None]] = [steps, [row.reached_minutes for row in rows]]
    columns += [[row.good_steps for row in rows], [row.good_minutes for row in rows]]
    cells = []
    for values in columns:
        found = of([float("inf") if value is None else float(value) for value in values])
        cells.append("not" if found == float("inf") else f"{found:,.0f}" if found > 1000 else _number(found))
    return f"| **{name}** | {' | '.join(cells)} | | | | |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    try:
        sys.exit(main(tyro.cli(Flags, args=sys.argv[1:split]), sys.argv[split + 1 :]))
    except PsRlError as error:
        sys.exit(f"seeds: {error}")
