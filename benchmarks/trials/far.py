"""
Learning over far links: the same run with float32 and without prefetch, and with `--link slow`, each worker behind 10
Mbit/s and 100 ms. A table of bytes both ways, steps and minutes until the score.

Run it as a module, with sizes in the environment: SEEDS=, WORKERS=, MEGABITS=, MILLISECONDS=; and with names of GAMES
as arguments (all without).
"""

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trials import figures
from benchmarks.trials.far_link import FarLink
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, last_row
from tests.integration.processes import Programs, programs_in, wait_for

GAMES = {
    "cartpole": ["--preset", "cartpole-a3c", "--until-return", "475"],
    # Catch with the learning rate of CartPole was over after 218 updates, of which joining was a fifth.
    "catch": [
        *("--preset", "cartpole-a3c", "--environment", "benchmarks.catch:Catch-v0", "--until-return", "0.95"),
        *("--reward-scale", "1", "--learning-rate", "5e-4"),
    ],
}
WAYS = {"float32": [], "slow": ["--link", "slow"]}
LEAST_SAVING, MOST_STEPS = 10.0, 1.1
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class Learned:
    """The outcome of one run."""

    steps: int
    updates: int
    bytes: int  # both ways, of all workers
    minutes: float
    score: float


def learn(
    programs: Programs, game: str, way: str, *, seed: int, workers: int, megabits: float, round_trip_seconds: float
) -> Learned:
    run = programs.folder / f"{game}-{way}-{seed}"
    server, endpoint = programs.start_server(*GAMES[game], "--seed", str(seed), run_dir=run)
    links = [FarLink(endpoint, megabits=megabits, round_trip_seconds=round_trip_seconds) for _ in range(workers)]
    try:
        began = time.monotonic()
        imports = ["--import", "benchmarks.catch"] if game == "catch" else []
        for link in links:
            programs.start("rl-worker", "--server", link.endpoint, *imports, *WAYS[way])
        wait_for(lambda: server.process.poll() is not None, within_seconds=LONGEST_SECONDS)
        assert server.wait() == 0, server.output[-2000:]
        minutes = (time.monotonic() - began) / 60
    finally:
        for link in links:
            link.close()
    row = last_row(run / METRICS, MetricsRow)
    assert row is not None
    both = sum(sum(link.carried) for link in links)
    return Learned(row.global_steps, row.updates, both, minutes, row.best_mean_return_100 or 0.0)


def trial(game: str, *, seeds: int, workers: int, megabits: int, milliseconds: int) -> dict[str, float]:
    """Medians over the seeds, by way, and their ratios."""
    found: dict[str, list[Learned]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        for seed in range(1, seeds + 1):
            for way in WAYS:
                link = {"megabits": megabits, "round_trip_seconds": milliseconds / 1000}
                one = learn(programs, game, way, seed=seed, workers=workers, **link)
                found[way].append(one)
                print(
                    f"{game}, seed {seed}, {way}: {one.steps:,} steps, {one.updates:,} updates, "
                    f"{one.bytes / 1e6:.1f} MB, {one.bytes / max(1, one.updates):,.0f} bytes an update, "
                    f"{one.minutes:.1f} minutes, {one.score:.2f}",
                    flush=True,
                )
    medians = {
        f"{way}_{name}": statistics.median(getattr(one, name) for one in ran)
        for way, ran in found.items()
        for name in ("steps", "bytes", "minutes")
    }
    return medians | {
        "saving": medians["float32_bytes"] / medians["slow_bytes"],
        "steps_ratio": medians["slow_steps"] / medians["float32_steps"],
    }


def main() -> int:
    sizes = figures.sizes(seeds=3, workers=2, megabits=10, milliseconds=100)
    status = 0
    for game in sys.argv[1:] or GAMES:
        found = trial(game, **sizes)
        broken = {
            f"{game}: at least {LEAST_SAVING:g} times fewer bytes": found["saving"] < LEAST_SAVING,
            f"{game}: at most {MOST_STEPS} times the steps": found["steps_ratio"] > MOST_STEPS,
        }
        status |= figures.report(found, broken)
    return status


if __name__ == "__main__":
    sys.exit(main())
