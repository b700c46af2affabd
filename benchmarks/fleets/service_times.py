"""
The service times of a push: measured on this machine with synthetic workers, and fitted to functions of the parameters.

A push visits four threads: the worker's and the server's main thread, and the thread of ZeroMQ beside each. The kernel
counts the processor time of each thread, so other programs on the machine change the counts little. Fitted is

    seconds = alone / workers + each + element · parameters

for each thread: `alone` is what is shared when many messages come at once. `element` depends on the codecs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.servers import serving
from common.protocol.messages import StatusReply, StatusRequest
from common.protocol.tensors import Schema, TensorSpec
from common.settings.run_spec import RunSpec
from common.sockets.request import ask
from rl_worker.load.processes import LoadProcesses
from rl_worker.load.target import PRESET
from rl_worker.load.workload import Workload

THREADS = ("server main", "server io", "worker main", "worker io")
FLOAT32 = "float32/float32"
CODECS = (FLOAT32, "bfloat16/bfloat16", "int8/bfloat16", "topk/bfloat16")  # of gradients and of weights
SECONDS = 1.5  # of one run
TURNS = 3  # the quickest of them counts: other programs can only take time away
SIZES = (2_000, 150_000, 700_000)
FITTED_WORKERS = (2, 32)
MANY_WORKERS = (256, 1000)  # does a push cost more where there are many?
CHECKED_SIZES = (20_000, 150_000)
CHECKED_WORKERS = (1, 4, 8, 16, 64)  # others than those that are fitted
IO_THREAD = "ZMQbg/IO"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of synthetic workers, all in one process, against a server on the same machine, over TCP."""

    workers: int
    parameters: int
    codecs: str
    pushes_per_second: float
    seconds: dict[str, float]  # of the processor, for each push, by thread


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that one thread works for one push."""

    alone: float
    each: float
    element: dict[str, float]  # by codecs

    def of(self, *, workers: float, parameters: float, codecs: str) -> float:
        """Where so many workers push at once."""
        return self.alone / workers + self.each + self.element[codecs] * parameters


Costs = dict[str, Cost]  # by thread


class ServiceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements, their place and time, and the functions fitted to them; service_times.json is one."""

    machine: str
    cores: int
    load_average: float  # before it began: other programs
    fitted: list[Measured]
    checked: list[Measured]
    costs: Costs
    wake_seconds: float  # until a thread that waits runs


def measured_runs() -> tuple[list[Measured], list[Measured]]:
    """The runs that costs are fitted to, and runs with other numbers of workers, which the simulator has to predict."""
    fitted = [(size, count, FLOAT32) for size in SIZES for count in FITTED_WORKERS]
    fitted += [(SIZES[0], count, FLOAT32) for count in MANY_WORKERS]
    fitted += [(SIZES[-1], count, codecs) for codecs in CODECS[1:] for count in FITTED_WORKERS]
    checked = [(size, count, FLOAT32) for size in CHECKED_SIZES for count in CHECKED_WORKERS]
    best: dict[tuple[int, int, str], Measured] = {}
    for _ in range(TURNS):
        for size in sorted({size for size, _, _ in fitted + checked}):
            with _server() as (server, pid):
                for run in (one for one in fitted + checked if one[0] == size):
                    found = _measured(server, pid, run[1], size, run[2])
                    if run not in best or found.pushes_per_second > best[run].pushes_per_second:
                        best[run] = found
    return [best[run] for run in fitted], [best[run] for run in checked]


def fitted_costs(runs: list[Measured]) -> Costs:
    """Costs by least squares of relative errors; the codecs besides float32 differ in `element` alone."""
    return {thread: _fitted(thread, runs) for thread in THREADS}


def _fitted(thread: str, runs: list[Measured]) -> Cost:
    columns = {codecs: at for at, codecs in enumerate(CODECS, start=2)}
    rows = np.zeros((len(runs), 2 + len(CODECS)))
    for row, run in zip(rows, runs, strict=True):
        row[0], row[1], row[columns[run.codecs]] = 1 / run.workers, 1, run.parameters
        row /= run.seconds[thread]
    # No cost is negative: what would be is left out, and the rest fitted again.
    kept = list(range(rows.shape[1]))
    found = np.zeros(rows.shape[1])
    while True:
        solution = np.linalg.lstsq(rows[:, kept], np.ones(len(runs)), rcond=None)[0]
        if (solution >= 0).all():
            break
        kept = [column for column, value in zip(kept, solution, strict=True) if value >= 0]
    found[kept] = solution
    element = {codecs: float(found[at]) for codecs, at in columns.items()}
    return Cost(alone=float(found[0]), each=float(found[1]), element=element)


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    """A server without a run: its address and its process id."""
    flags = ["--host", "127.0.0.1", "--port", "0", "--checkpoint-seconds", "3600", "--lease-seconds", "60"]
    with serving([sys.executable, "-m", "ps_server", *flags]) as server:
        yield server


def _measured(server: str, server_pid: int, workers: int, size: int, codecs: str) -> Measured:
    gradient_codec, weight_codec = codecs.split("/")
    workload = Workload(
        server=server,
        names=tuple(f"load-{number}" for number in range(workers)),
        schema=Schema([TensorSpec("all", (size,))]).specs,
        proposed_run=RunSpec(preset=PRESET).to_dict(),
        gradient_codec=gradient_codec,
        weight_codec=weight_codec,
        compute_seconds=0.0,
        steps=1,
        join_seconds=60.0,
        curve_server_key=None,
        curve_secret=None,
    )
    with LoadProcesses([workload]) as running:
        missing = sum(one.missing for one in running.join(lambda _: None))
        assert not missing, f"{missing} of {workers} workers could not join"
        pids = {"server": server_pid, "worker": running.pids[0]}
        running.push(SECONDS / 4, every_seconds=1e9, look=lambda: None)  # memory is touched for the first time
        before, pushes_before = _processor_seconds(pids), _updates(server)
        pushed = running.push(SECONDS, every_seconds=1e9, look=lambda: None)[0]
        after, pushes = _processor_seconds(pids), _updates(server) - pushes_before
        running.leave()
    found = Measured(
        workers=workers,
        parameters=size,
        codecs=codecs,
        pushes_per_second=sum(pushed.settled) / pushed.seconds,
        seconds={thread: (after[thread] - before[thread]) / pushes for thread in THREADS},
    )
    spent = "  ".join(f"{thread} {1e6 * seconds:.0f} µs" for thread, seconds in found.seconds.items())
    print(f"{workers} workers, {size:,}, {codecs}: {found.pushes_per_second:,.0f} pushes/s  {spent}", flush=True)
    return found


def _updates(server: str) -> int:
    reply, _ = ask(server, StatusRequest(request=1), timeout_seconds=60)
    assert isinstance(reply, StatusReply)
    return reply.status.updates


def _processor_seconds(pids: dict[str, int]) -> dict[str, float]:
    """Seconds of the processor so far, by thread."""
    found = dict.fromkeys(THREADS, 0.0)
    for program, pid in pids.items():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            is_io = (thread / "comm").read_text().startswith(IO_THREAD)
            if is_io or thread.name == str(pid):
                nanoseconds = int((thread / "schedstat").read_text().split()[0])
                found[f"{program} {'io' if is_io else 'main'}"] += 1e-9 * nanoseconds
    return found
