"""
Swarms of counting workers, and a comparison of their acknowledged pushes with the weights. A swarm may be a gang.

An unacknowledged push of a killed worker may be in the weights or not, at most once. An acknowledged push of a killed
worker is in a checkpoint before the server is killed next, and a worker is killed only after it has resent the pushes
that a killed server lost. docs/GUARANTEES.md gives the reasons. In a gang all this is so for the contributions of each
process. A member may be killed at any time: the speaker has what it has contributed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.trials.swarm import counters_in, done_beside
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of

PATIENCE_SECONDS = 60.0
SWARM, GANG = "benchmarks.trials.swarm", "benchmarks.trials.gang"


@dataclass(frozen=True)
class Swarm:
    first: int
    counters: Path
    program: Program


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
        self._program = GANG if are_gangs else SWARM
        self._before = int(are_gangs)  # elements that are not counts of one worker
        self._weights = weights
        self._shards = shards
        self._stop = programs.folder / "stop"
        self._all: list[Swarm] = []
        self.size = size
        self.alive: list[Swarm] = []
        self.next = 0  # the first number that no worker has had

    @property
    def is_full(self) -> bool:
        """Whether there are no weights left for new workers."""
        return self.next + self.size > self._weights

    def start(self, server: str, first: int | None = None, prefix: tuple[str, ...] = ()) -> Swarm:
        """A swarm of new workers; or of new incarnations of the workers from number `first` on."""
        first = self.next if first is None else first
        counters = self._programs.folder / f"counters-{len(self._all)}"
        copies = [str(self._shards)] if self._shards > 1 else []
        where = [str(first), str(self.size), str(self._weights), str(counters), str(self._stop), *copies]
        program = self._programs.start(self._program, server, *where, prefix=prefix)
        wait_for(lambda: counters.exists() and counters.stat().st_size == 16 * self.size, program=program)
        self.next = max(self.next, first + self.size)
        swarm = Swarm(first, counters, program)
        self.alive.append(swarm)
        self._all.append(swarm)
        return swarm

    def kill(self, swarm: Swarm) -> None:
        """Kill it with SIGKILL."""
        swarm.program.kill()
        self.alive.remove(swarm)

    def wait_until_resent(self, endpoint: str) -> None:
        """Wait until the weights contain every acknowledged push, at most PATIENCE_SECONDS."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            _, acknowledged, counted = self._counters(endpoint)
            if (counted >= acknowledged).all():
                return
            rest(0.2)

    def finish(self, endpoint: str) -> dict[str, int]:
        """
        Pushes begun and acknowledged, and how many of them the weights lack or contain twice. Of gangs also what the
        members have of those that are acknowledged, how far T is from the sum of all counts, and by how many pushes the
        weight that has the means of gradients of −1 is wrong.
        """
        self._stop.touch()
        for swarm in self.alive:
            wait_for(done_beside(swarm.counters).exists, within_seconds=120, program=swarm.program)
        self.wait_until_resent(endpoint)
        begun, acknowledged, counted = self._counters(endpoint)
        found = compared(begun, acknowledged, counted)
        if self._before:
            status, pushes = status_of(endpoint), int(whole(endpoint)[0])
            found["of_members"] = int(acknowledged.sum() - acknowledged[:: self.size].sum())
            found["steps_apart"] = abs(status.global_steps - int(counted.sum()))
            found["means_apart"] = abs(status.version - 1 - pushes)
        return found

    def _counters(self, endpoint: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pushes begun, pushes acknowledged [WEIGHTS], and the counts in the weights [COPIES, WEIGHTS], read last."""
        begun, acknowledged = np.zeros(self._weights, dtype=np.int64), np.zeros(self._weights, dtype=np.int64)
        for swarm in self._all:
            pushes = counters_in(swarm.counters)
            begun[swarm.first : swarm.first + self.size] += pushes[:, 0]
            acknowledged[swarm.first : swarm.first + self.size] += pushes[:, 1]
        counts = whole(endpoint).astype(np.int64)[self._before :]
        return begun, acknowledged, counts.reshape(self._shards, self._weights)


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
        "no acknowledged push is lost": found["lost"] > 0,
        "no push counts twice": found["doubled"] > 0,
        "pushes are acknowledged": found["acknowledged"] == 0,
        "members contribute": found.get("of_members") == 0,
        "steps are counted with what they belong to": found.get("steps_apart", 0) > 0,
        "a push of a gang is a mean": found.get("means_apart", 0) > 0,
    }
