"""
The trials of `make scale`: ways to put a machine to work, and how many workers and environments each is tried with.

A way is named in WAYS with the flags of its workers; rl-cluster takes the same ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ps_common.protocol.status import WorkerStatus
from rl_cluster.cores import usable_cores

CPU, GANG, GPU = "CPU", "gang", "GPU"
WAYS: dict[str, tuple[str, ...]] = {CPU: (), GANG: (), GPU: ("--device", "cuda", "--threads", str(usable_cores()))}
GPU_ENVIRONMENTS = (64, 128, 256, 512)
SHARES_OF_ENVIRONMENTS = (0.5, 2, 4)  # of the preset's number, tried with the best number of workers
NEARLY = 0.95  # of the most steps/s: a trial as fast as this is as good, and the one with the fewest games is the best


@dataclass(frozen=True)
class Trial:
    """So many workers of a way, with so many environments each."""

    way: str
    workers: int
    envs: int

    @property
    def worker_flags(self) -> dict[str, list[str]]:
        """The flags of each worker, by its name. A worker that two trials have in common has the same name in both."""
        flags = ["--envs", str(self.envs), *WAYS[self.way]]
        if self.way == GANG:
            return {f"{GANG}-{self.envs}-of-{self.workers}": [*flags, "--gang", str(self.workers)]}
        return {f"{self.way}-{self.envs}-{number}": flags for number in range(self.workers)}

    @property
    def cluster_flags(self) -> list[str]:
        flags = ["--workers", str(self.workers), "--envs", str(self.envs), *WAYS[self.way]]
        return [*flags, "--gang"] if self.way == GANG else flags

    def is_whole(self, worker: WorkerStatus) -> bool:
        """Whether all processes of this worker of the trial work."""
        return self.way != GANG or self.workers == 1 or f"gang/{self.workers - 1}" in worker.meters

    def __str__(self) -> str:
        return f"{self.way}: {self.workers} × {self.envs} environments"


@dataclass(frozen=True)
class Row:
    """A trial's result. `server_share` is of one core."""

    trial: Trial
    steps_per_second: float
    updates_per_second: float
    staleness: float
    server_share: float
    start_seconds: float  # until each of its workers had pushed: for all that were not running before


def by_workers(cores: int, envs: int) -> Iterator[Trial]:
    """
    All cores first, then fewer: so workers start once, and each next trial begins as soon as some have left.

    The number below all leaves a core to the server.
    """
    counts = {cores, *(2**power for power in range(cores.bit_length()))}
    if cores > 2:
        counts.add(cores - 1)
    for workers in sorted((count for count in counts if count <= cores), reverse=True):
        yield Trial(CPU, workers, envs)


def as_gangs(cores: int, envs: int) -> Iterator[Trial]:
    """All cores as one worker, and all but the server's."""
    for workers in sorted({cores, max(2, cores - 1)}, reverse=True):
        if cores > 1:
            yield Trial(GANG, workers, envs)


def by_environments(best: Trial) -> Iterator[Trial]:
    """The best trial so far with other numbers of environments."""
    for share in SHARES_OF_ENVIRONMENTS:
        if share * best.envs >= 1:
            yield Trial(best.way, best.workers, int(share * best.envs))


def on_gpu() -> Iterator[Trial]:
    """One worker with many environments."""
    for envs in GPU_ENVIRONMENTS:
        yield Trial(GPU, 1, envs)


def best_of(rows: Sequence[Row]) -> Row:
    """Of the rows that are nearly the fastest the one with the fewest games at once."""
    fastest = max(row.steps_per_second for row in rows)
    near = [row for row in rows if row.steps_per_second >= NEARLY * fastest]
    return min(near, key=lambda row: (row.trial.workers * row.trial.envs, -row.steps_per_second))
