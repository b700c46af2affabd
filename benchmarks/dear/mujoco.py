"""
`make dear-mujoco`: SAC on Hopper and HalfCheetah beside Stable-Baselines3's, at equal steps and at equal minutes.

The sides take turns, seed by seed. A run is a row of the JSON file, which is written when the run ends: a second call
runs what is missing. mujoco_page.py makes the page beside that file, and has the rule by which the sides are compared.
"""

import subprocess
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec
import psutil
import tyro

from benchmarks.dear.curves import Game, Point, curve, games_of
from benchmarks.dear.mujoco_page import OURS, THEIRS, Row, page_of
from benchmarks.learning.programs import evaluate, train
from ps_common.errors import PsRlError
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import CHECKPOINTS
from ps_common.settings.run_files import load_preset

HERE = Path(__file__).parent
EVERY = 10_000  # steps between two points of a curve
GREEDY_GAMES = 10
RUNS = Path("runs/dear-mujoco")


@dataclass(frozen=True, kw_only=True)
class Flags:
    """SAC of both sides on MuJoCo's robots."""

    presets: tuple[str, ...] = ("hopper-sac", "half-cheetah-sac")
    seeds: tuple[int, ...] = (1, 2, 3)
    sides: tuple[str, ...] = (OURS, THEIRS)
    steps: int = 300_000
    learning_starts: int = 10_000
    """steps before the first update"""
    peer_threads: int = 2
    """threads of Stable-Baselines3's network; each process of the other side has one"""
    every: int = EVERY
    """steps between two points of a curve"""
    shared: bool = False
    """whether other programs run on this machine meanwhile: minutes are compared on a quiet one alone"""
    file: Path = Path("benchmarks/results/dear-mujoco.json")
    """rows; the page lies beside it"""
    venvs: Path = Path(".peers")


def main(flags: Flags) -> None:
    """Run what has no row yet, and write the page after each run."""
    for seed, preset, side in product(flags.seeds, flags.presets, flags.sides):
        rows, environment = rows_in_file(flags.file), load_preset(preset).environment.id
        key = (side, environment, seed, flags.steps, flags.learning_starts)
        if any(row.key == key for row in rows):
            continue
        try:
            row = ours(preset, seed, flags) if side == OURS else theirs(preset, seed, flags)
        except (PsRlError, subprocess.CalledProcessError) as error:
            print(f"{key}: {error}; another call of this command tries it again", flush=True)
            continue
        rows.append(row)
        flags.file.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=0) + b"\n")
        flags.file.with_suffix(".md").write_text(page_of(rows))
        print(f"{key}: {row.minutes:.1f} minutes, curve ends at {row.curve[-1:]}", flush=True)


def rows_in_file(file: Path) -> list[Row]:
    """The rows of runs that have ended."""
    return msgspec.json.decode(file.read_bytes(), type=list[Row]) if file.exists() else []


def ours(preset: str, seed: int, flags: Flags) -> Row:
    """Two workers with an environment each, and the server, on this machine. Raises PsRlError."""
    busy, folder = psutil.cpu_percent(2.0), RUNS / f"{preset}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    trained = train(folder, [
        "--preset", preset, "--workers", "2", "--seed", str(seed), "--max-steps", str(flags.steps),
        "--learning-starts", str(flags.learning_starts), "--until-return", "None",
    ])  # fmt: skip
    start, (newest, *_) = trained.start_minutes, newest_first(folder / CHECKPOINTS)
    games = ["--episodes", str(GREEDY_GAMES), "--greedy"]
    greedy = evaluate(newest, games, result=folder.with_name(f"{folder.name}.greedy.json"))["scores"]
    end = Point(trained.steps, start + trained.minutes, None)
    return _row(OURS, preset, seed, games_of(folder, start), start, end, greedy, busy, flags)


class Finished(msgspec.Struct):
    """What sb3_mujoco.py prints."""

    games: list[Game]
    steps: int
    minutes: float
    greedy: list[float]


def theirs(preset: str, seed: int, flags: Flags) -> Row:
    """One process of Stable-Baselines3. Raises subprocess.CalledProcessError."""
    busy, environment = psutil.cpu_percent(2.0), load_preset(preset).environment.id
    command = [
        # -P: mujoco.py beside the program is not the package.
        flags.venvs / "sb3" / "bin" / "python", "-P", HERE / "sb3_mujoco.py", environment, seed, flags.steps,
        flags.learning_starts, flags.peer_threads, GREEDY_GAMES, time.time(),
    ]  # fmt: skip
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=Finished)
    end = Point(found.steps, found.minutes, None)
    return _row(THEIRS, preset, seed, found.games, 0.0, end, found.greedy, busy, flags)


def _row(
    side: str, preset: str, seed: int, games: list[Game], start_minutes: float, end: Point, greedy: list[float],
    busy: float, flags: Flags,
) -> Row:  # fmt: skip
    return Row(
        side=side,
        environment=load_preset(preset).environment.id,
        seed=seed,
        steps=flags.steps,
        learning_starts=flags.learning_starts,
        threads=1 if side == OURS else flags.peer_threads,
        minutes=round(end.minutes, 3),
        curve=curve(games, start_minutes=start_minutes, end=end, every=flags.every),
        greedy=greedy,
        busy_before=busy,
        shared=flags.shared,
        date=time.strftime("%Y-%m-%d"),
    )


if __name__ == "__main__":
    main(tyro.cli(Flags))
