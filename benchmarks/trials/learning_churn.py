"""
Learning under churn: CartPole with real workers, each of which lives EVERY seconds on average. Half of them get a
notice (SIGTERM), half are killed with SIGKILL, and a new process starts at once in the place of each.

Run it as a module, with sizes in the environment: SEED=, WORKERS=, EVERY=, RUNS= (pairs of a calm and a disturbed run).
A worker is live from the line of its log that says that it trains to the end of its process. The disturbed runs
together may take at most 1.3 times the live seconds of the calm ones to reach 475.
"""

import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trials import figures
from benchmarks.trials.learning import FLAGS, GOAL, LONGEST_MINUTES, PRESET, last_row_of, score_of
from ps_common.program.child_processes import how_it_ended
from tests.integration.processes import Program, Programs, programs_in

MOST_RATIO = 1.3
POLL_SECONDS = 0.05


@dataclass
class Learner:
    """A worker process."""

    program: Program
    life: float  # seconds
    due: float = float("inf")  # when it is to end
    live_since: float | None = None
    has_notice: bool = False

    def look(self, now: float) -> None:
        if self.live_since is None and " environments, " in self.program.output:
            self.live_since, self.due = now, now + self.life

    def lived(self, now: float) -> float:
        return 0.0 if self.live_since is None else now - self.live_since


class Learning:
    """One run to its end. Without `every` it is calm."""

    def __init__(self, programs: Programs, run: Path, *, seed: int, workers: int, every: float | None) -> None:
        self.kills = self.notices = self.left_badly = 0
        self.lived = 0.0  # by workers that are gone
        self._programs = programs
        self._every = every
        self._random = random.Random(seed)
        self._server, self._endpoint = programs.start_server(*PRESET, "--seed", str(seed), *FLAGS, run_dir=run)
        self._learners = [self._start() for _ in range(workers)]
        end = time.monotonic() + 60 * LONGEST_MINUTES
        while self._server.process.poll() is None:
            assert time.monotonic() < end, "it does not learn"
            time.sleep(POLL_SECONDS)
            self._learners = [self._next(learner, time.monotonic()) for learner in self._learners]
        self.lived += sum(learner.lived(time.monotonic()) for learner in self._learners)
        assert self._server.wait() == 0, self._server.output[-2000:]
        self.score, self.steps = score_of(run), int(last_row_of(run)["global_steps"])
        for learner in self._learners:
            # A worker that starts in the moment at which the run ends waits for a server, as it should.
            learner.program.signal(signal.SIGTERM)
            learner.program.wait()

    def _start(self) -> Learner:
        program = self._programs.start("rl-worker", "--server", self._endpoint)
        life = self._random.expovariate(1 / self._every) if self._every else float("inf")
        return Learner(program, life)

    def _next(self, learner: Learner, now: float) -> Learner:
        """The worker of this place, or the next one."""
        learner.look(now)
        status = learner.program.process.poll()
        if status is not None and self._server.process.poll() is None:
            self.lived += learner.lived(now)
            if learner.has_notice:
                self.left_badly += status != 0
                if status:
                    print(f"{how_it_ended(status)} after a notice: {learner.program.output[-2000:]}", flush=True)
            elif status not in (0, -signal.SIGKILL):  # 0: the run is over
                raise AssertionError(f"{how_it_ended(status)}: {learner.program.output[-2000:]}")
            return learner if status == 0 and not learner.has_notice else self._start()
        if status is None and now >= learner.due:
            learner.due, learner.has_notice = float("inf"), self._random.random() < 0.5
            self.notices += learner.has_notice
            self.kills += not learner.has_notice
            learner.program.signal(signal.SIGTERM if learner.has_notice else signal.SIGKILL)
        return learner


def trial(*, seed: int, workers: int, every: int, runs: int) -> dict[str, float]:
    """Figures by name."""
    found: dict[str, float] = {"seed": seed, "kills": 0, "notices": 0, "left_badly": 0, "calm_lived": 0.0, "lived": 0.0}
    found["least_score"] = float("inf")
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        for one in range(seed, seed + runs):
            calm = Learning(programs, Path(folder) / f"calm-{one}", seed=one, workers=workers, every=None)
            churn = Learning(programs, Path(folder) / f"churn-{one}", seed=one, workers=workers, every=every)
            seconds = f"{calm.lived:.0f} live seconds calm, {churn.lived:.0f} under churn"
            print(f"seed {one}: {seconds}; {calm.steps} and {churn.steps} steps", flush=True)
            found["calm_lived"] += calm.lived
            found["lived"] += churn.lived
            found["kills"] += churn.kills
            found["notices"] += churn.notices
            found["left_badly"] += churn.left_badly
            found["least_score"] = min(found["least_score"], calm.score, churn.score)
    return found | {"ratio": found["lived"] / found["calm_lived"]}


def main() -> int:
    found = trial(**figures.sizes(seed=1, workers=4, every=20, runs=3))
    return figures.report(
        found,
        {
            f"the score of {GOAL:g} is reached": found["least_score"] < GOAL,
            f"it takes at most {MOST_RATIO} times the live seconds": found["ratio"] > MOST_RATIO,
            "whoever gets a notice leaves in order": found["left_badly"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
