"""
Learning under failures: CartPole, with a worker killed by SIGKILL every few seconds and the server several times.

Run it as a module, with sizes in the environment: SEED=, WORKERS=, KILL_SECONDS= (from one killed worker to the next),
SERVER_KILLS=. An undisturbed run comes first. The disturbed run must reach the same score with at most 1.5 times the
steps and the time. The bound on time requires that programs start within a second or two, on idle cores.
"""

import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trials import figures
from ps_common.run_folder.paths import METRICS
from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for

PRESET = ("--preset", "cartpole")  # ends when the mean of 100 games reaches 475
GOAL = 475.0
FLAGS = ("--checkpoint-seconds", "1", "--lease-seconds", "2")
LONGEST_MINUTES = 30.0
MOST_RATIO = 1.5


@dataclass
class Learned:
    """The outcome of a run; its time starts when the first worker joins."""

    minutes: float
    steps: int
    score: float  # the best mean of 100 games
    worker_kills: int
    server_kills: int


class Deaths:
    """The schedule of kills. Times are seconds since the beginning."""

    def __init__(self, drawn: random.Random, *, kill_seconds: float, server_deaths: list[float]) -> None:
        self._random = drawn
        self._kill_seconds = self._worker_due = kill_seconds
        self._server_deaths = server_deaths
        self.workers = self.servers = 0

    def next_worker(self, passed: float, workers: int) -> int | None:
        """The number of a worker to kill now, if one is due."""
        if passed < self._worker_due:
            return None
        self._worker_due += self._kill_seconds
        self.workers += 1
        return self._random.randrange(workers)

    def is_servers_time(self, passed: float) -> bool:
        if self.servers >= len(self._server_deaths) or passed < self._server_deaths[self.servers]:
            return False
        self.servers += 1
        return True


def learn(programs: Programs, run: Path, *, seed: int, workers: int, deaths: Deaths | None) -> Learned:
    """One run to its end."""
    server, endpoint = programs.start_server(*PRESET, "--seed", str(seed), *FLAGS, run_dir=run)

    def start_worker(number: int) -> Program:
        return programs.start("rl-worker", "--server", endpoint, "--name", f"worker-{number}")

    running = [start_worker(number) for number in range(workers)]
    wait_for(lambda: status_of(endpoint).workers_alive, program=server)
    began = time.monotonic()
    while server.process.poll() is None:
        passed = time.monotonic() - began
        assert passed < 60 * LONGEST_MINUTES, "it does not learn"
        if deaths is not None and (number := deaths.next_worker(passed, workers)) is not None:
            running[number].kill()
            running[number] = start_worker(number)
        if deaths is not None and deaths.is_servers_time(passed):
            server.kill()
            again, port = ["--resume", str(run), *FLAGS], int(endpoint.rpartition(":")[2])
            server, _ = programs.start_server(*again, port=port, run_dir=run)
        time.sleep(0.05)
    assert server.wait() == 0, server.output[-2000:]
    minutes = (time.monotonic() - began) / 60
    kills = (deaths.workers, deaths.servers) if deaths else (0, 0)
    return Learned(minutes, last_row_of(run)["global_steps"], score_of(run), *kills)


def score_of(run: Path) -> float:
    """The best mean of 100 games of a run that is over."""
    return float(last_row_of(run)["best_mean_return_100"] or 0.0)


def last_row_of(run: Path) -> dict[str, Any]:
    """The last metrics of a run that is over."""
    row: dict[str, Any] = json.loads((run / METRICS).read_bytes().splitlines()[-1])
    return row


def trial(*, seed: int, workers: int, kill_seconds: int, server_kills: int) -> dict[str, float]:
    """Figures by name."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        calm = learn(programs, Path(folder) / "calm", seed=seed, workers=workers, deaths=None)
        drawn = random.Random(seed)
        # All within the duration of the undisturbed run.
        when = sorted(drawn.uniform(5, 60 * calm.minutes) for _ in range(server_kills))
        deaths = Deaths(drawn, kill_seconds=kill_seconds, server_deaths=when)
        run = Path(folder) / "disturbed"
        disturbed = learn(programs, run, seed=seed, workers=workers, deaths=deaths)
    return {
        "seed": seed,
        "worker_kills": disturbed.worker_kills,
        "server_kills": disturbed.server_kills,
        "calm_minutes": calm.minutes,
        "calm_steps": calm.steps,
        "calm_score": calm.score,
        "minutes": disturbed.minutes,
        "steps": disturbed.steps,
        "score": disturbed.score,
        "steps_ratio": disturbed.steps / calm.steps,
        "minutes_ratio": disturbed.minutes / calm.minutes,
    }


def main() -> int:
    size = figures.sizes(seed=1, workers=2, kill_seconds=5, server_kills=5)
    found = trial(**size)
    return figures.report(
        found,
        {
            f"the score of {GOAL:g} is reached": found["score"] < GOAL,
            "the server is killed SERVER_KILLS times": found["server_kills"] < size["server_kills"],
            f"it takes at most {MOST_RATIO} times the steps": found["steps_ratio"] > MOST_RATIO,
            f"it takes at most {MOST_RATIO} times the minutes": found["minutes_ratio"] > MOST_RATIO,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
