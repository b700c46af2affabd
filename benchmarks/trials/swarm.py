"""
Many small workers in one process, each counting in a weight of its own. A file of counters outlives the process.

Run it as a module: swarm HOST:PORT FIRST COUNT WEIGHTS COUNTERS STOP [COPIES]. Worker FIRST + k adds 1 to weight
FIRST + k, again and again, until the file STOP exists; with COPIES, to that of each of so many copies of the WEIGHTS,
so that each shard counts. Every fourth of its pushes has steps alone, and no gradient.

COUNTERS contains two numbers per worker: pushes with a gradient, begun and acknowledged. A file beside it has the steps
of all its pushes, begun and acknowledged. COUNTERS.done says that the last push of each has its answer. On SIGTERM each
worker leaves after its push, with GOODBYE, and the program exits with status 0.
"""

import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

from ps_common.protocol.tensors import Schema, TensorSpec
from tests.integration.integer_worker import joined

ALONE_EVERY, STEPS_ALONE = 4, 3  # a push with a gradient counts one step
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))  # after each push


def schema_of(weights: int) -> Schema:
    return Schema([TensorSpec("counts", (weights,))])


def counters_in(path: Path) -> np.ndarray:
    """Begun, acknowledged: [COUNT, 2]."""
    return np.fromfile(path, dtype=np.int64).reshape(-1, 2)


def done_beside(counters: Path) -> Path:
    """The file which says that nobody counts any more."""
    return counters.with_suffix(".done")


def steps_beside(counters: Path) -> Path:
    """The file with the steps."""
    return counters.with_name(f"steps-of-{counters.name}")


class Swarm:
    """The workers of this process."""

    def __init__(
        self, server: str, first: int, count: int, weights: int, copies: int, *, counters: Path, stop: Path
    ) -> None:
        self._server, self._first, self._weights, self._copies, self._stop = server, first, weights, copies, stop
        self._is_asked = threading.Event()  # to leave
        self._pushes, self._steps = (
            np.memmap(path, dtype=np.int64, mode="w+", shape=(count, 2)) for path in (counters, steps_beside(counters))
        )

    def count(self) -> bool:
        """Count until the file STOP exists, or until SIGTERM; whether it was the signal."""
        signal.signal(signal.SIGTERM, lambda *_: self._is_asked.set())
        workers = [threading.Thread(target=self._work, args=(number,)) for number in range(len(self._pushes))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return self._is_asked.is_set()

    def _work(self, worker: int) -> None:
        number, schema = self._first + worker, schema_of(self._copies * self._weights)
        parameters, newest, connections = joined(self._server, f"worker-{number}", schema)
        one = torch.zeros(schema.size)
        one[number :: self._weights] = -1.0
        for push in itertools.count(1):
            if self._stop.exists() or self._is_asked.is_set():
                break
            gradient, steps = (one, 1) if push % ALONE_EVERY else (None, STEPS_ALONE)
            self._note(worker, 0, gradient, steps)
            newest = parameters.push_pull(gradient, computed_on=newest, steps=steps)
            assert newest.settled is not None
            assert newest.settled.verdict in ("applied", "duplicate"), newest.settled
            self._note(worker, 1, gradient, steps)
            time.sleep(PAUSE_SECONDS)
        if self._is_asked.is_set():
            connections.close("leaves")
        # Else the connection stays open: if the server is killed now, it needs the pushes of the resend buffer.

    def _note(self, worker: int, column: int, gradient: torch.Tensor | None, steps: int) -> None:
        self._pushes[worker, column] += gradient is not None
        self._steps[worker, column] += steps


if __name__ == "__main__":
    torch.set_num_threads(1)
    threading.excepthook = lambda failed: (sys.excepthook(*failed[:3]), os._exit(1))  # type: ignore[arg-type]
    server, first, count, weights, counters, stop, *copies = sys.argv[1:]
    sizes = (int(number) for number in (first, count, weights, *(copies or ["1"])))
    if not Swarm(server, *sizes, counters=Path(counters), stop=Path(stop)).count():
        done_beside(Path(counters)).touch()
        threading.Event().wait()
