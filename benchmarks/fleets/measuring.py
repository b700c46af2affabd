"""
Runs of synthetic workers against a server on this machine, in turn: pushes a second, and what each thread costs.

The server has one core and all workers another, so that no run depends on where the scheduler puts their threads. The
kernel counts the processor time of each thread, and how often it waited for work. Other programs disturb both.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.fleets.service_times import CODECS, FLOAT32, THREADS, Measured, Turn
from benchmarks.load.workers import SyntheticWorkers
from benchmarks.servers import serving
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.sockets.request import status_of

SECONDS = 0.5  # of one run
WARM_SECONDS = 0.2  # before it: memory is touched for the first time
TURNS = 3
SIZES = (3_000, 30_000, 100_000, 300_000, 700_000, 1_700_000)
FITTED_WORKERS = (1, 2, 32)
CODEC_SIZE, CODEC_WORKERS = 700_000, (2, 32)
MANY_SIZE, MANY_WORKERS = 30_000, (256, 1000)  # does a push cost more where there are many?
CHECKED_SIZES = (1_000, 150_000)  # none of those that are fitted
CHECKED_WORKERS = (1, 4, 8, 16, 64)
IO_THREAD = "ZMQbg/IO"
CORES = sorted(os.sched_getaffinity(0))  # before the measurement confines this process to one of them

Setting = tuple[int, int, str]  # parameters, workers, codecs
Counts = dict[str, tuple[float, float]]  # by thread: seconds of the processor, and waits for work


def measured_turns() -> list[Turn]:
    """
    Several turns: each has the runs that costs are fitted to, and runs of other sizes and numbers, which the simulator
    has to predict. Runs of similar sizes follow each other, since the machine's speed changes within minutes.
    """
    fitted: list[Setting] = [(size, count, FLOAT32) for size in SIZES for count in FITTED_WORKERS]
    fitted += [(CODEC_SIZE, count, codecs) for codecs in CODECS[1:] for count in CODEC_WORKERS]
    fitted += [(MANY_SIZE, count, FLOAT32) for count in MANY_WORKERS]
    checked: list[Setting] = [(size, count, FLOAT32) for size in CHECKED_SIZES for count in CHECKED_WORKERS]
    assert len(CORES) > 1, "the server and the workers need a core each"
    turns = []
    for turn in range(TURNS):
        found = {}
        for size in sorted({size for size, _, _ in fitted + checked}):
            with _server() as (server, pid):
                for setting in (one for one in fitted + checked if one[0] == size):
                    found[setting] = _measured(server, pid, setting)
                    print(f"turn {turn + 1}: {_line(found[setting])}", flush=True)
        turns.append(Turn(fitted=[found[one] for one in fitted], checked=[found[one] for one in checked]))
    return turns


def _keep_apart(pids: Iterable[int]) -> None:
    """Each of these processes has a core of its own."""
    for pid, core in zip(pids, CORES, strict=False):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    """A server without a run: its address and its process id."""
    flags = ["--host", "127.0.0.1", "--port", "0", "--checkpoint-seconds", "3600", "--lease-seconds", "60"]
    with serving([sys.executable, "-m", "ps_server", *flags]) as server:
        yield server


def _measured(server: str, server_pid: int, setting: Setting) -> Measured:
    size, count, codecs = setting
    gradient_codec, weight_codec = codecs.split("/")
    names, schema = [f"load-{number}" for number in range(count)], Schema([TensorSpec("all", (size,))])
    with SyntheticWorkers(server, names, schema, gradient_codec=gradient_codec, weight_codec=weight_codec) as workers:
        workers.join(within_seconds=60.0)
        joined = len(workers.counts.ready_seconds)
        assert joined == count, f"{count - joined} of {count} workers could not join"
        pids = {"server": server_pid, "worker": os.getpid()}
        _keep_apart(pids.values())
        workers.push(WARM_SECONDS)
        before, pushes_before = _counts(pids), _updates(server)
        pushed = sum(workers.push(SECONDS))
        after, pushes = _counts(pids), _updates(server) - pushes_before
        workers.leave()
    return Measured(
        workers=count,
        parameters=size,
        codecs=codecs,
        pushes_per_second=pushed / SECONDS,
        seconds={thread: (after[thread][0] - before[thread][0]) / pushes for thread in THREADS},
        sleeps={thread: (after[thread][1] - before[thread][1]) / pushes for thread in THREADS},
    )


def _line(run: Measured) -> str:
    spent = "  ".join(f"{thread} {1e6 * seconds:.0f}" for thread, seconds in run.seconds.items())
    setting = f"{run.workers} workers, {run.parameters:,}, {run.codecs}"
    return f"{setting}: {run.pushes_per_second:,.0f} pushes/s  µs: {spent}"


def _updates(server: str) -> int:
    return status_of(server, timeout_seconds=60).status.updates


def _counts(pids: dict[str, int]) -> Counts:
    """The kernel's counts so far."""
    found = dict.fromkeys(THREADS, (0.0, 0.0))
    for program, pid in pids.items():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            is_io = (thread / "comm").read_text().startswith(IO_THREAD)
            name = f"{program} {'io' if is_io else 'main' if thread.name == str(pid) else 'rest'}"
            seconds = 1e-9 * int((thread / "schedstat").read_text().split()[0])
            status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            waits = int(status["voluntary_ctxt_switches"])
            found[name] = (found[name][0] + seconds, found[name][1] + waits)
    return found
