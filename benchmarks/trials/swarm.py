"""
Many small workers in one process, each counting in a weight of its own. A file of counters outlives the process.

Run it as a module: swarm HOST:PORT FIRST COUNT WEIGHTS COUNTERS STOP [COPIES]. Worker FIRST + k adds 1 to weight
FIRST + k, again and again, until the file STOP exists; with COPIES, to that of each of so many copies of the WEIGHTS,
so that each shard counts. COUNTERS contains two numbers per worker: pushes begun and acknowledged. COUNTERS.done says
that the last push of each has its answer.
"""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import torch

from ps_common.protocol.tensors import Schema, TensorSpec
from tests.integration.integer_worker import joined


def schema_of(weights: int) -> Schema:
    return Schema([TensorSpec("counts", (weights,))])


def counters_in(path: Path) -> np.ndarray:
    """Pushes begun, pushes acknowledged: [COUNT, 2]."""
    return np.fromfile(path, dtype=np.int64).reshape(-1, 2)


def done_beside(counters: Path) -> Path:
    """The file which says that nobody counts any more."""
    return counters.with_suffix(".done")


def work(server: str, number: int, schema: Schema, weights: int, counter: np.ndarray, stop: Path) -> None:
    parameters, newest, _ = joined(server, f"worker-{number}", schema)
    one = torch.zeros(schema.size)
    one[number::weights] = -1.0
    while not stop.exists():
        counter[0] += 1
        newest = parameters.push_pull(one, computed_on=newest, steps=1)
        assert newest.settled is not None
        assert newest.settled.verdict in ("applied", "duplicate"), newest.settled
        counter[1] += 1
    # The connection stays open: if the server is killed now, it needs the pushes of the resend buffer.


def main(server: str, first: int, count: int, weights: int, counters: Path, stop: Path, copies: int = 1) -> None:
    np.zeros((count, 2), dtype=np.int64).tofile(counters)
    mapped = np.memmap(counters, dtype=np.int64, mode="r+", shape=(count, 2))
    torch.set_num_threads(1)
    threading.excepthook = lambda failed: (sys.excepthook(*failed[:3]), os._exit(1))  # type: ignore[arg-type]
    schema = schema_of(copies * weights)
    workers = [
        threading.Thread(target=work, args=(server, first + k, schema, weights, mapped[k], stop)) for k in range(count)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    done_beside(counters).touch()
    threading.Event().wait()


if __name__ == "__main__":
    server, first, count, weights, counters, stop, *copies = sys.argv[1:]
    main(server, int(first), int(count), int(weights), Path(counters), Path(stop), *map(int, copies))
