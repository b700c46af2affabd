"""
`make dear-goals`: the steps until ten games have their goal in the mean, for each preset with a replay memory.

Two workers, one thread a process, one run after another, each to its limit of steps. A run is a row of the JSON file,
which is written when it ends: a second call runs what is missing. A section of dear-goals.md has the table.
"""

import os
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

import msgspec
import psutil
import tyro

from benchmarks.dear.curves import crossing, games_of, means
from benchmarks.dear.sections import HEAD, ORDER, STEPS
from benchmarks.learning.programs import evaluate, train
from benchmarks.peers.page import put

WORKERS, GAMES = 2, 20
RUNS = Path("runs/dear-goals")
FILE = Path("benchmarks/results/dear-goals.json")
GOALS = {  # the mean of ten games, and by how many steps
    "cartpole-dqn": (475.0, 50_000),
    "acrobot-dqn": (-100.0, 50_000),
    "lunar-lander-dqn": (200.0, 150_000),
    "pendulum-sac": (-200.0, 9_000),
    "inverted-double-pendulum-sac": (9_000.0, 20_000),
}
ABOVE = f"""\
`make dear-goals`. {WORKERS} workers with one environment each, one thread a process. The mean is that of the last ten
training games, which explore. Each run goes to its limit of steps. New games: {GAMES} by `rl-eval --greedy` with the
policy that the run keeps, their mean and its interval of 95 %. Minutes are those of the whole run, beside other work.

"""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The presets with a replay memory, and their goals."""

    presets: tuple[str, ...] = tuple(GOALS)
    seeds: tuple[int, ...] = (1, 2, 3)
    file: Path = FILE
    """rows; the page lies beside it"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended."""

    preset: str
    seed: int
    reached: int | None  # steps at which ten games first had the goal; None: not by the limit
    best: float | None  # greatest mean of ten games; None: fewer have ended
    last: float | None  # that at the end
    new_games: list[float]
    low: float | None  # of the mean of the new games, 95 %
    high: float | None
    minutes: float
    busy_before: float  # per cent of the processors before the run
    date: str


def main(flags: Flags) -> None:
    """Run what has no row yet, and write the page after each run."""
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = msgspec.json.decode(flags.file.read_bytes(), type=list[Row]) if flags.file.exists() else []
    for preset, seed in product(flags.presets, flags.seeds):
        if any((row.preset, row.seed) == (preset, seed) for row in rows):
            continue
        rows.append(row := measured(preset, seed))
        print(row, flush=True)
        rows.sort(key=lambda row: (list(GOALS).index(row.preset), row.seed))
        flags.file.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=0) + b"\n")
        put(flags.file.with_suffix(".md"), STEPS, ABOVE + table(rows), head=HEAD, order=ORDER)


def measured(preset: str, seed: int) -> Row:
    """Train to the limit, and play new games. Raises PsRlError."""
    goal, most_steps = GOALS[preset]
    busy, folder = psutil.cpu_percent(2.0), RUNS / f"{preset}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    trained = train(folder, [
        "--preset", preset, "--workers", str(WORKERS), "--seed", str(seed), "--max-steps", str(most_steps),
        "--until-return", "None",
    ])  # fmt: skip
    games = [game for game in games_of(folder) if game.steps <= most_steps]
    curve = [score for _, score in means(games)]
    result = folder.with_name(f"{folder.name}.greedy.json")
    played = evaluate(folder, ["--episodes", str(GAMES), "--greedy"], result=result)
    return Row(
        preset=preset,
        seed=seed,
        reached=crossing(games, goal),
        best=max(curve, default=None),
        last=curve[-1] if curve else None,
        new_games=played["scores"],
        low=played["low"],
        high=played["high"],
        minutes=round(trained.minutes, 2),
        busy_before=busy,
        date=time.strftime("%Y-%m-%d"),
    )


def table(rows: list[Row]) -> str:
    """A line for each preset."""
    lines = ["| preset | goal | reached, each seed | mean of ten at the end | new games | minutes | date |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for preset in dict.fromkeys(row.preset for row in rows):
        mine = [row for row in rows if row.preset == preset]
        goal, most_steps = GOALS[preset]
        cells = [
            f"`{preset}`, seeds {', '.join(str(row.seed) for row in mine)}",
            f"{number(goal)} by {most_steps:,}",
            "; ".join(_reached(row, most_steps) for row in mine),
            "; ".join("–" if row.last is None else number(row.last) for row in mine),
            "; ".join(_new_games(row) for row in mine),
            "; ".join(f"{row.minutes:.1f}" for row in mine),
            ", ".join(sorted({row.date for row in mine})),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _reached(row: Row, most_steps: int) -> str:
    if row.reached is not None:
        return f"{row.reached:,}"
    return f"not by {most_steps:,}" + ("" if row.best is None else f" (best {number(row.best)})")


def _new_games(row: Row) -> str:
    interval = "" if row.low is None or row.high is None else f" ({number(row.low)} to {number(row.high)})"
    return f"{number(mean(row.new_games))}{interval}"


def number(value: float) -> str:
    """A score."""
    return f"{value:,.1f}".removesuffix(".0").replace("-", "−")


if __name__ == "__main__":
    main(tyro.cli(Flags))
