"""
Churn: workers that come and go. Each of them lives EVERY seconds on average; half of them get a notice (SIGTERM), half
are killed with SIGKILL, and a new worker starts at once in the place of each.

Run it as a module, with sizes in the environment: SEED=, WORKERS=, MINUTES= of churn, EVERY= seconds. A calm phase of
the same run comes before the churn, and one after it, each a fifth as long. Updates per live second of a worker must be
at least 0.95 of those of the calm phases; a worker lives from the start of its process to its end. Every push is
counted: none may be lost or count twice, and a worker that got a notice leaves with status 0 and no push unsettled.

The workers are those of forked_worker.py: real clients in processes of their own, without a game. A start of theirs
takes milliseconds; learning_churn.py has real workers, which take seconds.
"""

import math
import mmap
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.trials import figures
from benchmarks.trials.counting import broken, compared
from benchmarks.trials.forked_worker import fork_worker
from tests.integration.processes import programs_in, wait_for, weights_of

LEAST_RATIO = 0.95
POLL_SECONDS = 0.005
FLAGS = ("--checkpoint-seconds", "5", "--lease-seconds", "2")


@dataclass
class Slot:
    """The place of one worker after another."""

    number: int
    process: int = 0  # of the present worker; 0: none
    lives: int = 0
    since: float = 0.0  # when the present worker was started
    due: float = math.inf  # when it is to end
    has_notice: bool = False
    unsettled: int = 0  # pushes of the workers before


@dataclass
class Phase:
    """A phase of the trial: the pushes that were acknowledged in it, and how long workers lived."""

    pushes: int
    lived: float

    @property
    def rate(self) -> float:
        return self.pushes / max(self.lived, 1e-9)


class Churn:
    """One trial. The process that runs it has one thread, since it forks."""

    def __init__(self, server: str, *, workers: int, every: float, seed: int) -> None:
        self.kills = self.notices = 0
        self.left_badly = 0  # with a notice, but with another status than 0, or with pushes unsettled
        self._server = server
        self._every = every
        self._random = random.Random(seed)
        # Shared with the workers: pushes begun and acknowledged, by slot.
        self.counters = np.frombuffer(mmap.mmap(-1, 16 * workers), dtype=np.int64).reshape(workers, 2)
        self._slots = [Slot(number) for number in range(workers)]
        self._lived = 0.0  # by workers that are gone
        for slot in self._slots:
            self._start(slot)

    def phase(self, seconds: float, *, is_calm: bool) -> Phase:
        """Let time pass."""
        for slot in self._slots:
            slot.due = math.inf if is_calm else self._end_of_life()
        began, lived, pushes = time.monotonic(), self._lived_by_now(), self.counters[:, 1].sum()
        while time.monotonic() < began + seconds:
            time.sleep(POLL_SECONDS)
            for slot in self._slots:
                if self._has_ended(slot):
                    self._start(slot)
                    slot.due = math.inf if is_calm else self._end_of_life()
                elif time.monotonic() >= slot.due:
                    self._end(slot, has_notice=self._random.random() < 0.5)
        return Phase(int(self.counters[:, 1].sum() - pushes), self._lived_by_now() - lived)

    def finish(self) -> dict[str, int]:
        """Ask every worker to leave, then compare the weights with the counters."""
        for slot in self._slots:
            if not slot.has_notice:
                self._end(slot, has_notice=True)
        wait_for(lambda: all(self._has_ended(slot) for slot in self._slots))
        counted = weights_of(self._server, len(self._slots)).numpy().astype(np.int64)
        begun, acknowledged = self.counters.T
        return compared(begun, acknowledged, counted)

    def _start(self, slot: Slot) -> None:
        slot.lives += 1
        slot.since, slot.has_notice = time.monotonic(), False
        slot.process = fork_worker(self._server, f"w{slot.number}-{slot.lives}", slot.number, self.counters)

    def _end_of_life(self) -> float:
        return time.monotonic() + self._random.expovariate(1 / self._every)

    def _end(self, slot: Slot, *, has_notice: bool) -> None:
        slot.due, slot.has_notice = math.inf, has_notice
        self.notices += has_notice
        self.kills += not has_notice
        os.kill(slot.process, signal.SIGTERM if has_notice else signal.SIGKILL)

    def _has_ended(self, slot: Slot) -> bool:
        """Whether the slot has no worker any more."""
        if slot.process:
            process, status = os.waitpid(slot.process, os.WNOHANG)
            if process:
                self._note_end(slot, os.waitstatus_to_exitcode(status))
        return not slot.process

    def _note_end(self, slot: Slot, status: int) -> None:
        begun, acknowledged = self.counters[slot.number]
        unsettled = int(begun - acknowledged)
        if slot.has_notice:
            self.left_badly += status != 0 or unsettled > slot.unsettled
        else:
            assert status == -signal.SIGKILL, f"a worker failed with status {status}"
        slot.unsettled = unsettled
        slot.process = 0
        self._lived += time.monotonic() - slot.since

    def _lived_by_now(self) -> float:
        return self._lived + sum(time.monotonic() - slot.since for slot in self._slots if slot.process)


def trial(*, seed: int, workers: int, seconds: int, every: int) -> dict[str, float]:
    """Figures by name; `lost` and `doubled` must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder), import_anew=True) as programs:
        server, endpoint = programs.start_server(*FLAGS)
        churn = Churn(endpoint, workers=workers, every=every, seed=seed)
        wait_for(lambda: (churn.counters[:, 1] > 0).all(), program=server)
        calm = [churn.phase(seconds / 5, is_calm=True)]
        disturbed = churn.phase(seconds, is_calm=False)
        calm.append(churn.phase(seconds / 5, is_calm=True))
        counts = churn.finish()
        calm_rate = sum(phase.pushes for phase in calm) / sum(phase.lived for phase in calm)
        return {
            "seed": seed,
            "workers": workers,
            "kills": churn.kills,
            "notices": churn.notices,
            "left_badly": churn.left_badly,
            "calm_rate": calm_rate,
            "rate": disturbed.rate,
            "ratio": disturbed.rate / calm_rate,
            **counts,
        }


def main() -> int:
    sizes = figures.sizes(seed=0, workers=24, minutes=10, every=20)
    found = trial(seed=sizes["seed"], workers=sizes["workers"], seconds=60 * sizes["minutes"], every=sizes["every"])
    return figures.report(
        found,
        {
            **broken(found),
            f"{LEAST_RATIO} of the calm updates per live second": found["ratio"] < LEAST_RATIO,
            "whoever gets a notice leaves in order": found["left_badly"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
