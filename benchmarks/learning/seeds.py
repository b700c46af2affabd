"""
`make seeds`: one preset with several seeds, one run after another, and how soon each came to a score. `make speedrun`:
the same for a track of benchmarks/SPEEDRUN.md, whose protocol, mark and five seeds were fixed before.

A row has the steps and minutes until the last 100 training games averaged the score, with the minutes in brackets that
the programs took to start. With --preset the best checkpoint then plays with sampled actions. Flags after `--` go to
rl-cluster, so a recipe is compared with the preset's own in one command. Minutes mean something on a machine that does
nothing else; the table has the load beside them.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from benchmarks.learning.programs import evaluate, new_folder, train
from ps_common.errors import PsRlError, SettingsError
from ps_common.release import release
from ps_common.settings.run_files import load_preset

TABLE, ROWS = "table.md", "rows.json"
SEED_OF_GAMES = 1_000_000


@dataclass(frozen=True)
class Track:
    """A game with its protocol, its mark, and the minutes after which a run is given up. The preset may change."""

    preset: str
    mark: float
    most_minutes: float
    flags: tuple[str, ...] = ()


TRACKS = {
    "pong": Track("pong", 18, 10),
    "pong-sticky": Track("pong-sticky", 18, 10),
    "breakout-sticky": Track("breakout", 60, 10, ("--sticky-actions", "0.25", "--actions")),
    "cartpole": Track("cartpole", 475, 5),
    "doom": Track("doom-basic-fast", 80, 5),
}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One preset, or one track, with several seeds: how soon each run comes to a score."""

    folder: Path | None = None
    """new folder for the runs, the table and the rows; runs/PRESET-seeds-DATE when not given"""
    preset: str = "pong"
    """the preset; other flags of rl-cluster follow after --"""
    track: str = ""
    """instead of a preset: pong, pong-sticky, breakout-sticky, cartpole, doom, with seeds 0 to 4 and two workers"""
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
    mean: float | None  # of the last 100 training games
    sampled: float | None  # mean of the best checkpoint's games with sampled actions; of a track None
    steps_per_second: float
    load: float  # of the machine in the last minute of the run


def main(flags: Flags, of_the_run: Sequence[str]) -> int:
    if flags.track and flags.track not in TRACKS:
        raise SettingsError(f"--track {flags.track}: there are {', '.join(TRACKS)}")
    track = TRACKS.get(flags.track) or Track(flags.preset, flags.score or _score_of(flags.preset), math.inf)
    seeds = range(5) if flags.track else range(flags.first_seed, flags.first_seed + flags.seeds)
    folder = new_folder(flags.folder, f"{flags.track or flags.preset}-{'speedrun' if flags.track else 'seeds'}")
    rows: list[Row] = []
    for seed in seeds:
        rows.append(measured(folder / f"seed-{seed}", flags, track, seed, [*track.flags, *of_the_run]))
        (folder / ROWS).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        (folder / TABLE).write_text(table(rows, preset=track.preset, score=track.mark, flags=of_the_run))
        print((folder / TABLE).read_text(), flush=True)
    if flags.track:
        print(line_of_track(rows, commit=release().partition("+")[2]))
    return 0


def _score_of(preset: str) -> float:
    if (score := load_preset(preset).budget.until_return) is None:
        raise SettingsError(f"--score: the preset {preset} has no score of its own; give one")
    return score


def measured(folder: Path, flags: Flags, track: Track, seed: int, of_the_run: Sequence[str]) -> Row:
    """Train with this seed, then evaluate what the run kept."""
    given = ["--preset", track.preset, "--until-return", str(track.mark), *of_the_run]
    given += ["--max-minutes", str(track.most_minutes)] if flags.track else []
    workers = 2 if flags.track else flags.workers
    run = train(folder, [*given, "--workers", str(workers), "--seed", str(seed)])
    load, sampled = os.getloadavg()[0], None
    if not flags.track:
        playing = ["--episodes", str(flags.games), "--seed", str(SEED_OF_GAMES)]
        sampled = evaluate(folder, playing, result=folder.with_name(f"{folder.name}-sampled.json"))["mean"]
    start, reached, mean = run.start_minutes, run.minutes_to_target, run.mean_return_100
    return Row(seed, run.steps, run.minutes, start, reached, mean, sampled, run.steps_per_second, load)


def table(rows: Sequence[Row], *, preset: str, score: float, flags: Sequence[str]) -> str:
    """Markdown: a row for each seed, then medians and worst. A run that did not reach the score counts as the worst."""
    recipe = f"`{preset} {' '.join(flags)}`" if flags else f"`{preset}`"
    head = [f"steps to a mean of {score:g}", "minutes (to start)", "last 100 games", "sampled", "steps/s"]
    lines = [recipe, "", f"| seed | {' | '.join(head)} | load |", f"|{'---|' * (len(head) + 2)}"]
    for row in rows:
        reached = "" if row.reached_minutes is not None else "not in "
        cells = [
            str(row.seed),
            f"{reached}{row.steps:,}",
            f"{reached}{_number(row.reached_minutes or row.minutes)} ({row.start_minutes:.3f})",
            *("–" if mean is None else f"{mean:.1f}" for mean in (row.mean, row.sampled)),
            f"{row.steps_per_second:,.0f}",
            f"{row.load:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [_summary("median", statistics.median, rows), _summary("worst", max, rows)]
    return "\n".join(lines) + "\n"


def line_of_track(rows: Sequence[Row], *, commit: str) -> str:
    """A line of SPEEDRUN.md: median minutes, those of each seed, steps, what is new, load, day, commit."""
    median = _of(statistics.median, [row.reached_minutes for row in rows])
    each = ", ".join(_number(row.reached_minutes or math.inf) for row in rows)
    steps = ", ".join(f"{row.steps:,}" for row in rows)
    return f"| {median} | {each} | {steps} | | {rows[-1].load:.1f} | {time.strftime('%Y-%m-%d')} | {commit} |"


def _summary(name: str, of: Callable[[list[float]], float], rows: Sequence[Row]) -> str:
    """A line with one number for each column; "not" where it is that of runs that did not reach the score."""
    steps = [row.steps if row.reached_minutes is not None else None for row in rows]
    return f"| **{name}** | {_of(of, steps)} | {_of(of, [row.reached_minutes for row in rows])} | | | | |"


def _of(of: Callable[[list[float]], float], values: Sequence[float | None]) -> str:
    return _number(of([math.inf if value is None else float(value) for value in values]))


def _number(value: float) -> str:
    if value == math.inf:
        return "not"
    return f"{value:,.0f}" if value > 1000 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    try:
        sys.exit(main(tyro.cli(Flags, args=sys.argv[1:split]), sys.argv[split + 1 :]))
    except PsRlError as error:
        sys.exit(f"seeds: {error}")
