"""
Does the server leak? Workers join and leave all the time, while its memory and its descriptors are sampled.

Run it as a module, with sizes in the environment: SEED=, MINUTES=, WORKERS= (at a time), NAMES= (of workers). Workers
leave with GOODBYE, silently, or because their process is killed with SIGKILL. Bounded tables fill in the first third of
the time; after it, memory must grow by less than a mebibyte an hour. With arguments it is one of these processes: soak
HOST:PORT FIRST COUNT NAMES SEED has COUNT workers at a time, under NAMES names from number FIRST on.

Resident memory follows memory in use only if the allocator returns free memory to the kernel, which GIVE_BACK enforces.
On a busy machine messages queue up; a queue longer than ever before shows as growth.
"""

import os
import random
import sys
import time
from collections.abc import Sequence

import numpy as np
import psutil

from benchmarks.load.workers import SyntheticWorkers
from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from ps_common.protocol.tensors import Schema, TensorSpec
from tests.integration.processes import Program, Programs, status_of, wait_for

HERDS = 4  # processes that the workers live in
KILL_SECONDS = 10.0  # from one killed process to the next
SAMPLE_SECONDS = 1.0
SCHEMA = Schema([TensorSpec("sum", (1000,))])
PUSH_SECONDS = 1.0  # between two pushes of a worker
JOIN_SECONDS = 10.0  # a name whose last worker left silently is free when its lease has ended
LONGEST_SECONDS = 10.0  # that workers push
MOST_GROWTH_MIB = 1.0  # an hour
GIVE_BACK = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}


class Herds:
    """The processes of the workers; each uses different names."""

    def __init__(self, programs: Programs, endpoint: str, *, seed: int, workers: int, names: int) -> None:
        self._programs = programs
        self._endpoint = endpoint
        self._random = random.Random(seed)
        self._workers, self._names = workers // HERDS, names // HERDS
        self._running: list[Program] = []
        self.killed = 0
        self.start()

    def start(self) -> None:
        self._running = [self._start(number) for number in range(HERDS)]

    def kill_one(self) -> None:
        number = self._random.randrange(HERDS)
        assert self._running[number].process.poll() is None, self._running[number].output
        self._running[number].kill()
        self._running[number] = self._start(number)
        self.killed += 1

    def end(self) -> None:
        for program in self._running:
            program.kill()

    def _start(self, number: int) -> Program:
        sizes = [number * self._names, self._workers, self._names, self._random.randrange(2**31)]
        return self._programs.start("benchmarks.trials.soak", self._endpoint, *map(str, sizes))


def herd(server: str, first: int, count: int, names: int, seed: int) -> None:
    """Workers join, push for some seconds and leave, half of the times silently, again and again."""
    drawn = random.Random(seed)
    how = {"gradient_codec": "float32", "weight_codec": "float32", "compute_seconds": PUSH_SECONDS}
    while True:
        chosen = [f"worker-{number}" for number in drawn.sample(range(first, first + names), count)]
        with SyntheticWorkers(server, chosen, SCHEMA, **how) as workers:  # type: ignore[arg-type]
            workers.join(within_seconds=JOIN_SECONDS)
            workers.push(drawn.uniform(PUSH_SECONDS, LONGEST_SECONDS))
            if drawn.random() < 0.5:
                workers.leave()


def trial(*, seed: int, minutes: float, workers: int, names: int) -> dict[str, float]:
    """Figures by name; `leaked` descriptors must be 0. Children inherit GIVE_BACK."""
    os.environ.update(GIVE_BACK)
    with programs_of_a_trial() as programs:
        server, endpoint = programs.start_server("--checkpoint-seconds", "5", "--lease-seconds", "2")
        process = psutil.Process(server.process.pid)
        herds = Herds(programs, endpoint, seed=seed, workers=workers, names=names)
        # The first reply with weights starts pyzmq's garbage-collector thread, which has descriptors of its own.
        wait_for(lambda: status_of(endpoint).updates >= workers, program=server)
        descriptors = _without_connections(process, herds, endpoint)
        herds.start()
        samples = _watched(process, herds, seconds=60 * minutes)
        status = status_of(endpoint)
        leaked = _without_connections(process, herds, endpoint) - descriptors
        settled = [sample for sample in samples if sample[0] >= 20 * minutes]
        return {
            "seed": seed,
            "minutes": minutes,
            "joined": server.output.count(" joined"),
            "killed_processes": herds.killed,
            "updates": status.updates,
            "rss_mib_first": samples[0][1],
            "rss_mib_settled": settled[0][1],
            "rss_mib_last": settled[-1][1],
            "rss_mib_per_hour": 3600 * slope(settled),
            "descriptors": max(descriptors for _, _, descriptors in settled),
            "leaked": leaked,
        }


def _without_connections(process: psutil.Process, herds: Herds, endpoint: str) -> int:
    """The server's descriptors after all workers are gone, and with their leases their mapped segments."""
    herds.end()
    wait_for(lambda: status_of(endpoint).workers_alive == 0)
    wait_for(lambda: all(one.status == psutil.CONN_LISTEN for one in process.net_connections(kind="tcp")))
    return int(process.num_fds())


def _watched(process: psutil.Process, herds: Herds, *, seconds: float) -> list[tuple[float, float, int]]:
    """Samples (seconds since the beginning, resident MiB, descriptors), while herds are killed."""
    began, kill_due, samples = time.monotonic(), KILL_SECONDS, []
    while (passed := time.monotonic() - began) < seconds:
        samples.append((passed, process.memory_info().rss / 2**20, process.num_fds()))
        if passed >= kill_due:
            kill_due += KILL_SECONDS
            herds.kill_one()
        time.sleep(SAMPLE_SECONDS)
    return samples


def slope(samples: Sequence[tuple[float, float, int]]) -> float:
    """Mebibytes per second: the median slope of all pairs (Theil 1950, Sen 1968), which is robust to outliers."""
    seconds, mib = np.array(samples)[:: 1 + len(samples) // 1000, :2].T
    one, other = np.triu_indices(len(seconds), k=1)
    return float(np.median((mib[other] - mib[one]) / (seconds[other] - seconds[one])))


def main() -> int:
    found = trial(**sizes(seed=0, minutes=60, workers=200, names=2000))
    return report(
        found,
        {
            f"memory grows by less than {MOST_GROWTH_MIB} MiB an hour": found["rss_mib_per_hour"] >= MOST_GROWTH_MIB,
            "no descriptor is leaked": found["leaked"] > 0,
        },
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        herd(sys.argv[1], *map(int, sys.argv[2:]))
    sys.exit(main())
