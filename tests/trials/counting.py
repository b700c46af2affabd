"""
Swarms of counting workers, and whether what they were told is in the weights.

What a killed worker had pushed and was not told of may be in the weights or not, once each. What it was told of is in a
checkpoint before the server is killed next, and what the server forgot is sent again before its worker is killed:
docs/GUARANTEES.md says why.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.integration.processes import Program, Programs, wait_for, weights_of
from tests.trials.swarm import books_of

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Swarm:
    first: int
    books: Path
    program: Program


class Swarms:
    """Swarms of `size` workers each. `weights` is the number of workers that there may be."""

    def __init__(self, programs: Programs, *, size: int, weights: int) -> None:
        self._programs = programs
        self._weights = weights
        self._stop = programs.folder / "stop"
        self._all: list[Swarm] = []
        self.size = size
        self.alive: list[Swarm] = []
        self.next = 0  # worker that never was

    @property
    def is_full(self) -> bool:
        """Whether only workers that were can be started."""
        return self.next + self.size > self._weights

    def start(self, server: str, first: int | None = None, prefix: tuple[str, ...] = ()) -> Swarm:
        """A swarm of new workers, or, as new incarnations, of those from `first` on."""
        first = self.next if first is None else first
        books = self._programs.folder / f"books-{len(self._all)}"
        where = [str(first), str(self.size), str(self._weights), str(books), str(self._stop)]
        program = self._programs.start("tests.trials.swarm", server, *where, prefix=prefix)
        wait_for(lambda: books.exists() and books.stat().st_size == 16 * self.size, program=program)
        self.next = max(self.next, first + self.size)
        swarm = Swarm(first, books, program)
        self.alive.append(swarm)
        self._all.append(swarm)
        return swarm

    def kill(self, swarm: Swarm) -> None:
        """As kill −9."""
        swarm.program.kill()
        self.alive.remove(swarm)

    def until_nothing_is_missing(self, endpoint: str) -> None:
        """The workers have sent again what a killed server forgot; or they never will."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            _, acknowledged, counted = self._books(endpoint)
            if (counted >= acknowledged).all():
                return
            rest(0.2)

    def finish(self, endpoint: str) -> dict[str, int]:
        """Pushes begun and acknowledged, and how many of them are missing in the weights, or there too often."""
        self._stop.touch()

        def at_rest() -> bool:
            books = [books_of(swarm.books) for swarm in self.alive]
            return all(np.array_equal(book[:, 0], book[:, 1]) for book in books)

        for swarm in self.alive:
            wait_for(at_rest, within_seconds=120, program=swarm.program)
        self.until_nothing_is_missing(endpoint)
        begun, acknowledged, counted = self._books(endpoint)
        return {
            "begun": int(begun.sum()),
            "acknowledged": int(acknowledged.sum()),
            "lost": int(np.maximum(acknowledged - counted, 0).sum()),
            "doubled": int(np.maximum(counted - begun, 0).sum()),
        }

    def _books(self, endpoint: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each worker, [WEIGHTS]: pushes begun, pushes acknowledged, and after these, what the weights say."""
        begun, acknowledged = np.zeros(self._weights, dtype=np.int64), np.zeros(self._weights, dtype=np.int64)
        for swarm in self._all:
            book = books_of(swarm.books)
            begun[swarm.first : swarm.first + self.size] += book[:, 0]
            acknowledged[swarm.first : swarm.first + self.size] += book[:, 1]
        return begun, acknowledged, weights_of(endpoint, self._weights).numpy().astype(np.int64)


def rest(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until)


def broken(found: Mapping[str, float]) -> dict[str, bool]:
    """Which of the promises about counts are, by what was promised."""
    return {
        "no acknowledged push is lost": found["lost"] > 0,
        "no push counts twice": found["doubled"] > 0,
        "pushes are acknowledged": found["acknowledged"] == 0,
    }
