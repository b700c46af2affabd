"""
An honest worker that records the latency of each push.

Run it as a module: honest HOST:PORT NAME SEED TIMES STOP. It pushes integers until the file STOP exists,
then prints their sum and stays alive. TIMES is a file of float64 pairs: the time of a reply (time.monotonic) and its
latency in seconds.
"""

import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from tests.integration.integer_worker import SCHEMA, joined

PAUSE_SECONDS = 0.002  # between two pushes: latency is measured, not throughput


def times_of(path: Path) -> np.ndarray:
    """The pairs that a worker has written so far, [N, 2]."""
    data = path.read_bytes()
    return np.frombuffer(data[: len(data) // 16 * 16], dtype=np.float64).reshape(-1, 2)


def main(server: str, name: str, seed: int, times: Path, stop: Path) -> None:
    torch.set_num_threads(1)
    parameters, newest, _ = joined(server, name, SCHEMA)
    drawn = np.random.default_rng(seed)
    total = np.zeros(SCHEMA.size)
    with times.open("wb", buffering=0) as file:
        while not stop.exists():
            gradient = drawn.integers(-9, 10, size=SCHEMA.size).astype(np.float32)
            total += gradient
            began = time.monotonic()
            newest = parameters.push_pull(torch.from_numpy(gradient), computed_on=newest, steps=1)
            now = time.monotonic()
            assert newest.settled is not None
            assert newest.settled.verdict in ("applied", "duplicate"), newest.settled
            file.write(np.array([now, now - began]).tobytes())
            time.sleep(PAUSE_SECONDS)
    print("pushed", *total.astype(int), flush=True)
    signal.pause()


if __name__ == "__main__":
    server, name, seed, times, stop = sys.argv[1:]
    main(server, name, int(seed), Path(times), Path(stop))
