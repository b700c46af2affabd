"""
Swarms of counting workers, and a comparison of their acknowledged pushes with the weights. A swarm may be a gang.

An unacknowledged push of a killed worker may be in the weights or not, at most once. An acknowledged push of a killed
worker is in a checkpoint before the server is killed next, and a worker is killed only after it has resent the pushes
that a killed server lost. docs/GUARANTEES.md gives the reasons. Steps are compared with the account that the ledger of
a checkpoint has of each process: pushes of steps alone are nowhere else. In a gang all this is so for the contributions
of each process, and T is their sum. A member may be killed at any time: the speaker has what it has contributed.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trials.swarm import counters_in, done_beside, steps_beside
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of

SWARM, GANG = "benchmarks.trials.swarm", "benchmarks.trials.gang"

Ledger = Mapping[str, int]  # steps of settled pushes of the newest process of each worker id


@dataclass(frozen=True)
class Swarm:
    first: int
    counters: Path
    stop: Path
    program: Program

    def is_settled(self) -> bool:
        """Whether every push that was begun is acknowledged."""
        pushes = counters_in(self.counters)
        return np.array_equal(pushes[:, 0], pushes[:, 1])

    def has_pushed(self) -> bool:
        """Whether a push of each worker is acknowledged."""
        return bool((counters_in(self.counters)[:, 1] > 0).all())

    def is_done(self) -> bool:
        """Whether all have stopped, with nothing in flight."""
        return done_beside(self.counters).exists()

    def steps(self) -> np.ndarray:
        """Steps begun, acknowledged: [COUNT, 2]."""
        return counters_in(steps_beside(self.counters))


class Swarms:
    """
    Swarms of `size` workers each. `weights` bounds the number of workers, since each has a weight of its own.

    With shards there are as many copies of these weights, all of which must count alike; an ENDPOINT is then the
    addresses of all, with blanks between. Where `are_gangs`, there is one weight, the number of pushes, and statistics
    in the place of the others.
    """

    def __init__(
        self, programs: Programs, *, size: int, weights: int, shards: int = 1, are_gangs: bool = False
    ) -> None:
        self._programs = programs
        self._are_gangs = are_gangs
        self._weights = weights
        self._shards = shards
        self._all: list[Swarm] = []
        self._steps = Counter[str]()  # begun, acknowledged, lost and doubled, of swarms that are over
        self.size = size
        self.alive: list[Swarm] = []
        self.next = 0  # the first number that no worker has had

    @property
    def is_full(self) -> bool:
        """Whether there are no weights left for new workers."""
        return self.next + self.size > self._weights

    def start(self, server: str, first: int | None = None, **how: Any) -> Swarm:
        """A swarm of new workers; or of new incarnations of the workers from number `first` on. `how`: of Program."""
        first = self.next if first is None else first
        counters, stop = (self._programs.folder / f"{what}-{len(self._all)}" for what in ("counters", "stop"))
        copies = [str(self._shards)] if self._shards > 1 else []
        where = [str(first), str(self.size), str(self._weights), str(counters), str(stop), *copies]
        program = self._programs.start(GANG if self._are_gangs else SWARM, server, *where, **how)
        files = [counters] if self._are_gangs else [counters, steps_beside(counters)]
        wait_for(
            lambda: all(file.exists() and file.stat().st_size == 16 * self.size for file in files),
            within_seconds=120,
            program=program,
        )
        self.next = max(self.next, first + self.size)
        self.alive.append(swarm := Swarm(first, counters, stop, program))
        self._all.append(swarm)
        return swarm

    def kill(self, swarm: Swarm) -> None:
        """Kill it with SIGKILL."""
        swarm.program.kill()
        self.alive.remove(swarm)

    def ask_to_leave(self, swarm: Swarm) -> bool:
        """Whether it then leaves with status 0, and each of its pushes is acknowledged."""
        swarm.program.process.terminate()
        self.alive.remove(swarm)
        return swarm.program.wait(120) == 0 and swarm.is_settled()

    def are_in(self, endpoint: str) -> bool:
        """Whether the weights contain every acknowledged push."""
        _, acknowledged, counted = self._counters(endpoint)
        return bool((counted >= acknowledged).all())

    def steps_acknowledged(self) -> Ledger:
        """By worker, of those that are alive."""
        found: dict[str, int] = {}
        for swarm in [] if self._are_gangs else self.alive:
            steps = swarm.steps()[:, 1]
            found |= {name: int(count) for name, count in zip(self._names(swarm), steps, strict=True)}
        return found

    def note_steps(self, swarm: Swarm, ledgers: Sequence[Ledger]) -> None:
        """Compare the steps of a swarm that is over with the accounts of a later checkpoint at each shard."""
        if not self._are_gangs:
            begun, acknowledged = swarm.steps().T
            counted = np.array([[ledger.get(name, 0) for name in self._names(swarm)] for ledger in ledgers])
            # The account of a process that has no reply to a push yet may be that of the process before.
            self._steps.update(compared(begun, acknowledged, np.where(acknowledged > 0, counted, 0)))

    def stop(self) -> None:
        """Let all that are alive acknowledge their last pushes, and count no more."""
        for swarm in self.alive:
            swarm.stop.touch()
        for swarm in self.alive:
            wait_for(swarm.is_done, within_seconds=300, program=swarm.program)

    def figures(self, endpoint: str, ledgers: Sequence[Ledger] = ()) -> dict[str, int]:
        """
        Pushes begun and acknowledged, and how many of them the weights lack or contain twice; the same of steps, where
        ledgers are given; and how far T is from what the steps allow. Of gangs also what the members have of those that
        are acknowledged, and by how many pushes the weight that has the means of gradients of −1 is wrong.
        """
        for swarm in self.alive if ledgers else ():
            self.note_steps(swarm, ledgers)
        begun, acknowledged, counted = self._counters(endpoint)
        found = compared(begun, acknowledged, counted)
        status = status_of(endpoint.split()[0])
        if self._are_gangs:
            found["of_members"] = int(acknowledged.sum() - acknowledged[:: self.size].sum())
            found["steps_apart"] = abs(status.global_steps - int(counted.sum()))
            found["means_apart"] = abs(status.version - 1 - int(whole(endpoint)[0]))
        else:
            begun, acknowledged = np.sum([swarm.steps().sum(axis=0) for swarm in self._all], axis=0)
            found |= {f"steps_{name}": self._steps[name] for name in ("acknowledged", "lost", "doubled") if ledgers}
            found["steps_apart"] = max(int(acknowledged) - status.global_steps, status.global_steps - int(begun), 0)
        return found

    def counted(self, column: int) -> np.ndarray:
        """The pushes that all workers have begun (0) or have acknowledged (1)."""
        counts = np.zeros(self._weights, dtype=np.int64)
        for swarm in self._all:
            counts[swarm.first : swarm.first + self.size] += counters_in(swarm.counters)[:, column]
        return counts

    def _counters(self, endpoint: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pushes begun, pushes acknowledged [WEIGHTS], and the counts in the weights [COPIES, WEIGHTS], read last."""
        begun, acknowledged = self.counted(0), self.counted(1)
        counts = whole(endpoint).astype(np.int64)[int(self._are_gangs) :]
        return begun, acknowledged, counts.reshape(self._shards, self._weights)

    def _names(self, swarm: Swarm) -> list[str]:
        return [f"worker-{swarm.first + number}" for number in range(self.size)]


def compared(begun: np.ndarray, acknowledged: np.ndarray, counted: np.ndarray) -> dict[str, int]:
    """Pushes begun and acknowledged by each worker, against how many are in the weights."""
    return {
        "begun": int(begun.sum()),
        "acknowledged": int(acknowledged.sum()),
        "lost": int(np.maximum(acknowledged - counted, 0).sum()),
        "doubled": int(np.maximum(counted - begun, 0).sum()),
    }


def whole(endpoint: str) -> np.ndarray:
    """The weights of a server, or of all shards one after another."""
    parts = [weights_of(one, status_of(one).parameters).numpy() for one in endpoint.split()]
    return np.concatenate(parts)


def rest(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until)


def broken(found: Mapping[str, float]) -> dict[str, bool]:
    """Whether each guarantee about counts is broken, by guarantee."""
    return {
        "no acknowledged push is lost": found["lost"] > 0 or found.get("steps_lost", 0) > 0,
        "no push counts twice": found["doubled"] > 0 or found.get("steps_doubled", 0) > 0,
        "pushes are acknowledged": found["acknowledged"] == 0 or found.get("steps_acknowledged") == 0,
        "members contribute": found.get("of_members") == 0,
        "steps are counted with what they belong to": found.get("steps_apart", 0) > 0,
        "a push of a gang is a mean": found.get("means_apart", 0) > 0,
    }
