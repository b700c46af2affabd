"""
`make speedrun TRACK=…`: minutes to a mark on this machine, five seeds that were fixed before, one run after another.

A track is a game with its protocol and its mark: a mean of the last 100 full training games. SPEEDRUN.md has the rules
and the rows. The row that is printed is added there when it is the quickest of its track.
"""

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.learning.programs import Trained, new_folder, train
from ps_common.errors import PsRlError
from ps_common.release import release

SEEDS = range(5)


@dataclass(frozen=True)
class Track:
    """A game with its protocol, its mark, and the minutes after which a run is given up. The preset may change."""

    flags: str
    mark: float
    most_minutes: float


TRACKS = {
    "pong": Track("--preset pong", 18, 10),
    "pong-sticky": Track("--preset pong-sticky", 18, 10),
    "breakout-sticky": Track("--preset breakout --sticky-actions 0.25 --actions", 60, 10),
    "cartpole": Track("--preset cartpole", 475, 5),
    "doom": Track("--preset doom-basic-fast", 80, 5),
}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """Minutes to the mark of a track, seeds 0 to 4."""

    track: str
    """one of pong, pong-sticky, breakout-sticky, cartpole, doom"""
    folder: Path | None = None
    """new folder for the runs; runs/speedrun-TRACK-DATE when not given"""


def main(flags: Flags) -> int:
    if (track := TRACKS.get(flags.track)) is None:
        raise PsRlError(f"--track {flags.track}: there are {', '.join(TRACKS)}")
    folder = new_folder(flags.folder, f"speedrun-{flags.track}")
    limits = ["--until-return", str(track.mark), "--max-minutes", str(track.most_minutes), "--workers", "2"]
    runs: list[Trained] = []
    for seed in SEEDS:
        runs.append(train(folder / f"seed-{seed}", [*track.flags.split(), *limits, "--seed", str(seed)]))
        print(row(runs, commit=release().partition("+")[2], load=os.getloadavg()[0]), flush=True)
    return 0


def row(runs: list[Trained], *, commit: str, load: float) -> str:
    """A line of the track's table: median minutes, those of each seed, steps, load, day, commit."""
    minutes = [float("inf") if run.minutes_to_target is None else run.minutes_to_target for run in runs]
    each = ", ".join(
        f"not in {run.minutes:.1f} ({_mean(run)})" if found == float("inf") else f"{found:.2f}"
        for run, found in zip(runs, minutes, strict=True)
    )
    median = statistics.median(minutes)
    cells = ["not" if median == float("inf") else f"{median:.2f}", each, ", ".join(f"{run.steps:,}" for run in runs)]
    return f"| {' | '.join(cells)} | | {load:.1f} | {time.strftime('%Y-%m-%d')} | {commit} |"


def _mean(run: Trained) -> str:
    return "no 100 games" if run.mean_return_100 is None else f"{run.mean_return_100:.1f}"


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Flags)))
    except PsRlError as error:
        sys.exit(f"speedrun: {error}")
