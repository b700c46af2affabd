"""
Workers of very different speeds: six from 1 to 0.05 times the fastest, against six equal ones of the same speed
together. Is a slow worker useful, and its late gradients harmless?

Both learn CartPole to 475. Gradients of a worker at 0.05 are computed on weights that are older by all that the others
pushed meanwhile. A table of steps and minutes, and of each worker's pushes and staleness, and no push may be discarded.

Run it as a module, with SEEDS= in the environment.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trials import figures
from ps_common.errors import PsRlError
from ps_common.protocol.status import Status
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, last_row
from tests.integration.processes import Programs, programs_in, status_of, wait_for

MIXED = (1.0, 0.8, 0.5, 0.2, 0.1, 0.05)
SPEEDS = {"equal": (sum(MIXED) / len(MIXED),) * len(MIXED), "mixed": MIXED}
MODULE = "benchmarks.trials.paced_cartpole"
RUN = ["--preset", "cartpole-a3c", "--environment", f"{MODULE}:PacedCartPole-v0", "--until-return", "475"]
MOST_STEPS = 1.3  # of those of equal workers
LONGEST_SECONDS = 1800.0


@dataclass(frozen=True)
class Learned:
    """The outcome of one run."""

    steps: int
    minutes: float
    discarded: int
    workers: str  # speed, pushes and mean staleness of each


def learn(programs: Programs, speeds: Sequence[float], *, folder: str, seed: int) -> Learned:
    run = programs.folder / folder
    server, endpoint = programs.start_server(*RUN, "--seed", str(seed), run_dir=run)
    for number, speed in enumerate(speeds):
        flags = ["--server", endpoint, "--name", f"w{number}", "--import", MODULE]
        programs.start("rl-worker", *flags, variables={"SPEED": str(speed)})
    seen: list[Status] = []
    wait_for(lambda: _look(endpoint, seen) or server.process.poll() is not None, within_seconds=LONGEST_SECONDS)
    assert server.wait() == 0, server.output[-2000:]
    row = last_row(run / METRICS, MetricsRow)
    assert row is not None
    workers = sorted(seen[-1].workers, key=lambda worker: worker.worker_id)
    told = [
        f"{speed:.2g}: {worker.pushes} pushes, {worker.staleness:.1f} late"
        for speed, worker in zip(speeds, workers, strict=True)
    ]
    return Learned(row.global_steps, row.minutes, sum(worker.discarded for worker in workers), "; ".join(told))


def _look(endpoint: str, seen: list[Status]) -> bool:
    """The newest status, until the server has gone; never true."""
    time.sleep(1.0)
    with contextlib.suppress(PsRlError):
        seen[:] = [status_of(endpoint)]
    return False


def main() -> int:
    sizes = figures.sizes(seeds=3)
    found: dict[str, list[Learned]] = {kind: [] for kind in SPEEDS}
    for seed in range(1, sizes["seeds"] + 1):
        for kind, speeds in SPEEDS.items():
            with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
                one = learn(programs, speeds, folder=kind, seed=seed)
            found[kind].append(one)
            print(f"seed {seed}, {kind}: {one.steps:,} steps, {one.minutes:.1f} minutes ({one.workers})", flush=True)
    medians = {
        f"{kind}_{name}": statistics.median(getattr(one, name) for one in ran)
        for kind, ran in found.items()
        for name in ("steps", "minutes")
    }
    medians["steps_ratio"] = medians["mixed_steps"] / medians["equal_steps"]
    medians["minutes_ratio"] = medians["mixed_minutes"] / medians["equal_minutes"]
    broken = {
        f"at most {MOST_STEPS} times the steps": medians["steps_ratio"] > MOST_STEPS,
        "no push is discarded": any(one.discarded for ran in found.values() for one in ran),
    }
    return figures.report(medians, broken)


if __name__ == "__main__":
    sys.exit(main())
