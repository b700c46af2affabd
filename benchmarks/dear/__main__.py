"""
`make dear`: minutes and steps until ten games of a slow simulator have −200 in the mean, from the command on.

ps-rl with 1, 2, 4, 8 and 16 simulators, and Stable-Baselines3's SAC with one and with two, in turn, for each seed. The
table becomes benchmarks/results/dear.md.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
import psutil
import tyro

from benchmarks.dear.curves import GAMES, Game, crossing
from ps_common.run_folder.run_rows import EpisodeRow, RowsTail

GOAL = -200.0
UPDATES = 2  # for each step, on both sides: the processors have nothing else to do
HERE = Path(__file__).parent
PAGE = Path("benchmarks/results/dear.md")


@dataclass(frozen=True, kw_only=True)
class Flags:
    """SAC on a simulator of 20 ms a step."""

    seeds: tuple[int, ...] = (1, 2, 3)
    simulators: tuple[int, ...] = (1, 2, 4, 8, 16)
    peers: tuple[int, ...] = (1, 2)
    """simulators of Stable-Baselines3"""
    most_minutes: float = 8.0
    """of a run"""
    venvs: Path = Path(".peers")


class Reached(msgspec.Struct):
    """The end of a run."""

    reached: bool
    minutes: float
    steps: int


def ours(seed: int, simulators: int, most_minutes: float) -> Reached:
    """One simulator in each of up to two workers; beyond that each worker steps its share in threads."""
    workers = min(2, simulators)
    with tempfile.TemporaryDirectory(prefix="dear-") as folder:
        run = Path(folder, "run")
        command = [
            Path(sys.executable).with_name("rl-cluster"), "--preset", "pendulum-sac", "--environment",
            "benchmarks.dear.slow:make", "--workers", workers, "--envs", simulators // workers, "--step-in", "threads",
            "--replay-ratio", UPDATES, "--seed", seed,
            "--until-return", "None", "--max-minutes", most_minutes, "--no-web", "--run-dir", run,
        ]  # fmt: skip
        began = time.time()
        with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL) as child:
            reached, played = False, list[Game]()
            games = RowsTail(run / "episodes.jsonl", EpisodeRow)
            while child.poll() is None and not reached:
                time.sleep(0.1)
                played += [Game(row.global_steps, row.minutes, row.episode_return) for row in games.read()[0]]
                reached = crossing(played, GOAL) is not None
            minutes = (time.time() - began) / 60
            child.terminate()
    return Reached(reached, minutes, played[-1].steps if played else 0)


def theirs(seed: int, simulators: int, flags: Flags) -> Reached:
    """Stable-Baselines3's SAC."""
    python = flags.venvs / "sb3" / "bin" / "python"
    command = [python, HERE / "sb3_sac.py", seed, simulators, UPDATES, GOAL, flags.most_minutes]
    began = time.time()
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=Reached)
    return msgspec.structs.replace(found, minutes=(time.time() - began) / 60)


def main(flags: Flags) -> None:
    """Measure, and write the page."""
    found: dict[tuple[str, int], list[Reached]] = {}
    busy = psutil.cpu_percent(2.0)
    for seed in flags.seeds:
        for who, counts in (("Stable-Baselines3", flags.peers), ("ps-rl", flags.simulators)):
            for count in counts:
                one = ours(seed, count, flags.most_minutes) if who == "ps-rl" else theirs(seed, count, flags)
                found.setdefault((who, count), []).append(one)
                print(f"seed {seed}: {who}, simulators {count}: {one}", flush=True)
    PAGE.write_text(_page(flags, found, busy))


def _page(flags: Flags, found: dict[tuple[str, int], list[Reached]], busy: float) -> str:
    lines = [
        "# Dear steps: a simulator of 20 ms a step",
        "",
        f"`make dear`, {time.strftime('%Y-%m-%d')}, {psutil.cpu_count()} cores, {busy:.0f} % busy before. Pendulum-v1 "
        f"that sleeps, until {GAMES} games have {GOAL:g} in the mean; minutes from the command on, seeds "
        f"{', '.join(map(str, flags.seeds))}. Both sides: SAC, hidden layers of 64 and 64, batch 128, learning rate "
        f"1e-3, learning from step 500 on, {UPDATES} updates a step. Scores are those of training games.",
        "",
        "| | simulators | minutes, median | minutes, each seed | steps, each seed |",
        "|---|---|---|---|---|",
    ]
    for (who, count), runs in found.items():
        minutes = [f"{one.minutes:.2f}" if one.reached else f"not in {one.minutes:.1f}" for one in runs]
        middle = f"{median(one.minutes for one in runs):.2f}" if all(one.reached for one in runs) else "–"
        steps = ", ".join(f"{one.steps:,}" for one in runs)
        lines.append(f"| {who} | {count} | {middle} | {', '.join(minutes)} | {steps} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(tyro.cli(Flags))
