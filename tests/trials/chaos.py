"""
Integer chaos: small workers count in weights of their own, through a network that loses, doubles, delays and reorders,
while they and the server are killed with −9 at moments of chance. At the end the weights must be the counts.

Run it as a module, with sizes in the environment: SEED=, KILLS=, SWARM= (workers that die together). Ends with one line
of figures, and a status that is not 0 when anything was lost or doubled.

What a killed worker had pushed and was not told of may be in the weights or not, once each. What it was told of is in a
checkpoint before the server is killed next, and what the server forgot is sent again before its worker is killed:
docs/GUARANTEES.md says why.
"""

import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common import messages
from common.errors import Refused, ServerUnreachable
from common.zmq_request import ask
from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for, weights_of
from tests.trials import figures
from tests.trials.proxy import Faults, Proxy
from tests.trials.swarm import books_of

SWARMS = 3  # at a time
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Swarm:
    first: int
    books: Path
    program: Program


class Chaos:
    """One trial. `weights` is the number of workers that there may be."""

    def __init__(self, programs: Programs, *, seed: int, swarm: int, weights: int) -> None:
        self._programs = programs
        self._random = random.Random(seed)
        self._size, self._weights = swarm, weights
        self._stop = programs.folder / "stop"
        self._server, self._endpoint = programs.start_server("--checkpoint-seconds", "2")
        self.proxy = Proxy(self._endpoint, Faults(), seed)
        self._next = 0  # worker that never was
        self._all: list[Swarm] = []
        self.alive: list[Swarm] = []
        self.server_kills = self.swarm_kills = 0
        for _ in range(SWARMS):
            self._start_swarm(self._next)
        wait_for(lambda: status_of(self._endpoint).version > 1, program=self._server)

    def disturb(self) -> None:
        """Let it work for a moment, then kill something, or cut a connection."""
        self._grow(self._random.randrange(10, 200))
        for _ in range(self._random.randrange(3)):
            self.proxy.cut()
        if self._random.random() < 0.5:
            self._kill_server()
        else:
            self._kill_swarm()

    def finish(self) -> tuple[int, int, int, int]:
        """Pushes begun and acknowledged, and how many of them are missing in the weights, or there too often."""
        self._stop.touch()

        def at_rest() -> bool:
            books = [books_of(swarm.books) for swarm in self.alive]
            return all(np.array_equal(book[:, 0], book[:, 1]) for book in books)

        for swarm in self.alive:
            wait_for(at_rest, within_seconds=120, program=swarm.program)
        self._until_nothing_is_missing()
        begun, acknowledged, counted = self._books()
        self.proxy.close()
        lost = int(np.maximum(acknowledged - counted, 0).sum())
        doubled = int(np.maximum(counted - begun, 0).sum())
        return int(begun.sum()), int(acknowledged.sum()), lost, doubled

    @property
    def workers(self) -> int:
        return self._next

    def _books(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each worker, [WEIGHTS]: pushes begun, pushes acknowledged, and after these, what the weights say."""
        begun, acknowledged = np.zeros(self._weights, dtype=np.int64), np.zeros(self._weights, dtype=np.int64)
        for swarm in self._all:
            book = books_of(swarm.books)
            begun[swarm.first : swarm.first + self._size] += book[:, 0]
            acknowledged[swarm.first : swarm.first + self._size] += book[:, 1]
        return begun, acknowledged, weights_of(self._endpoint, self._weights).numpy().astype(np.int64)

    def _until_nothing_is_missing(self) -> None:
        """The workers have sent again what a killed server forgot; or they never will."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            _, acknowledged, counted = self._books()
            if (counted >= acknowledged).all():
                return
            self._rest(0.2)

    def _kill_server(self) -> None:
        port = int(self._endpoint.rpartition(":")[2])
        self._server.kill()
        self.server_kills += 1
        self._rest(self._random.uniform(0, 1.5))
        run = str(self._programs.folder / "run")
        self._server, _ = self._programs.start_server("--resume", run, "--checkpoint-seconds", "2", port=port)
        # The promise holds while the worker lives: nobody may die before it has sent again what was forgotten.
        self._until_nothing_is_missing()

    def _kill_swarm(self) -> None:
        swarm = self._random.choice(self.alive)
        swarm.program.kill()
        self.alive.remove(swarm)
        self.swarm_kills += 1
        self._save()
        # Some come back under their old names, as new incarnations.
        again = self._random.random() < 0.3 or self._next + self._size > self._weights
        self._start_swarm(swarm.first if again else self._next)

    def _save(self) -> None:
        """A checkpoint that was begun now."""
        try:
            ask(self._endpoint, messages.CheckpointRequest(request=1), timeout_seconds=60)
        except (Refused, ServerUnreachable) as error:
            raise AssertionError(f"no checkpoint: {error}\n{self._server.output[-2000:]}") from error

    def _start_swarm(self, first: int) -> None:
        books = self._programs.folder / f"books-{len(self._all)}"
        where = [str(first), str(self._size), str(self._weights), str(books), str(self._stop)]
        program = self._programs.start("tests.trials.swarm", self.proxy.endpoint, *where)
        wait_for(lambda: books.exists() and books.stat().st_size == 16 * self._size, program=program)
        self._next = max(self._next, first + self._size)
        swarm = Swarm(first, books, program)
        self.alive.append(swarm)
        self._all.append(swarm)

    def _grow(self, updates: int) -> None:
        goal = status_of(self._endpoint).version + updates
        wait_for(lambda: status_of(self._endpoint).version >= goal, within_seconds=120, program=self._server)

    @staticmethod
    def _rest(seconds: float) -> None:
        until = time.monotonic() + seconds
        wait_for(lambda: time.monotonic() >= until)


def trial(*, seed: int, kills: int, swarm: int) -> dict[str, int]:
    """Figures by name; `lost` and `doubled` must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        chaos = Chaos(programs, seed=seed, swarm=swarm, weights=swarm * (SWARMS + kills))
        for _ in range(kills):
            chaos.disturb()
        begun, acknowledged, lost, doubled = chaos.finish()
        return {
            "seed": seed,
            "workers": chaos.workers,
            "server_kills": chaos.server_kills,
            "swarm_kills": chaos.swarm_kills,
            "cut": chaos.proxy.cut_off,
            "dropped": chaos.proxy.dropped,
            "duplicated": chaos.proxy.doubled,
            "begun": begun,
            "acknowledged": acknowledged,
            "lost": lost,
            "doubled": doubled,
        }


def main() -> int:
    told = trial(**figures.sizes(seed=0, kills=20, swarm=15))
    return figures.told(
        told,
        {
            "no acknowledged push is lost": told["lost"] > 0,
            "no push counts twice": told["doubled"] > 0,
            "pushes are acknowledged": told["acknowledged"] == 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
