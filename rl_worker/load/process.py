"""
One process of ps-bench, with as many synthetic workers as it is told.

A Workload comes as JSON on standard input, and the reports go to standard output, a line each. When all workers have
joined, the process waits for a line "push SECONDS", and for the end of its input to leave.
"""

import random
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from common.program.run_program import run_program
from common.protocol.codecs import CODECS
from common.protocol.names import as_text
from common.protocol.tensors import Schema
from common.protocol.wire import Buffer
from common.sockets.curve import ClientKeys, CurveFlags
from common.sockets.descriptors import take_every_descriptor_allowed
from rl_worker.load.histogram import bucket_of
from rl_worker.load.synthetic_worker import SEED_CODEC, SyntheticWorker
from rl_worker.load.workload import Joined, Progress, Pushed, Report, Workload
from rl_worker.machine.identity import Identity
from rl_worker.machine.parameter_client import ParameterClient
from rl_worker.shell.many_dealers import ManyDealers

PROGRESS_SECONDS = 0.5
UNEVEN = 0.2  # of the time between a reply and the next push: so much more or less, or all would push at once
GOODBYE_SECONDS = 1.0


def main() -> NoReturn:
    """The process."""
    run_program(work, "ps-bench")


def work() -> int:
    """Do what the workload says. Raises PsRlError."""
    take_every_descriptor_allowed()
    torch.set_num_threads(1)
    workload = msgspec.json.decode(sys.stdin.readline(), type=Workload)
    began = time.time()
    workers = synthetic_workers(workload)
    dealers = ManyDealers(workload.server, workers, keys_of(workload))
    try:
        join(workers, dealers, until=time.monotonic() + workload.join_seconds)
        print_line(_joined(workers, began))
        dealers.listen_to(sys.stdin)
        while line := _next_line(dealers):
            print_line(_push(workers, dealers, seconds=float(line.split()[1])))
        leave(workers, dealers)
    finally:
        dealers.close()
    return 0


def synthetic_workers(workload: Workload) -> list[SyntheticWorker]:
    """The workers, still without a connection."""
    schema = Schema(workload.schema)
    zeros = torch.zeros(schema.size)
    # A run that is not made for load tests gets no weights, even if it has lost its own.
    seed: list[Buffer] = [CODECS[SEED_CODEC].encode(zeros, schema.statistics)] if workload.steps else []
    gradient = [CODECS[workload.gradient_codec].encode(zeros, schema.statistics)]
    drawn, compute = random.Random(workload.names[0]), workload.compute_seconds
    now = time.monotonic()
    return [
        SyntheticWorker(
            _machine(name, workload, now=now),
            schema,
            seed=seed,
            gradient=gradient,
            gradient_codec=workload.gradient_codec,
            weight_codec=workload.weight_codec,
            steps=workload.steps,
            pause=lambda: compute * drawn.uniform(1 - UNEVEN, 1 + UNEVEN),
            now=now,
        )
        for name in workload.names
    ]


def _machine(name: str, workload: Workload, *, now: float) -> ParameterClient:
    identity = Identity(
        worker_id=name,
        secret=secrets.token_hex(16),
        overrides={},
        proposed_run=workload.proposed_run,
        host=as_text(socket.gethostname()),
        environments=1,
    )
    # Nothing is kept for a restored server: pushes are zeros.
    return ParameterClient(identity, patience_seconds=workload.join_seconds, resend_bytes=0, now=now)


def keys_of(workload: Workload) -> ClientKeys | None:
    """The keys that the flags of ps-bench name."""
    server, own = workload.curve_server_key, workload.curve_secret
    return CurveFlags(
        curve_server_key=Path(server) if server else None, curve_secret=Path(own) if own else None
    ).client_keys()


def join(workers: list[SyntheticWorker], dealers: ManyDealers, *, until: float) -> None:
    """Drive the workers until each has weights or is over, or time is up; progress is printed."""
    printed = time.monotonic()

    def is_done(now: float) -> bool:
        nonlocal printed
        waiting = sum(worker.ready_seconds is None and not worker.is_over for worker in workers)
        if now - printed > PROGRESS_SECONDS:
            printed = now
            print_line(Progress(ready=sum(worker.ready_seconds is not None for worker in workers)))
        return not waiting or now > until

    dealers.drive(is_done)


def leave(workers: list[SyntheticWorker], dealers: ManyDealers) -> None:
    """Every worker sends GOODBYE, so that the server forgets their leases at once."""
    for number, worker in enumerate(workers):
        dealers.send(number, worker.leave(now=time.monotonic()))
    end = time.monotonic() + GOODBYE_SECONDS
    dealers.drive(lambda now: now > end)


def print_line(report: Report) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)


def _next_line(dealers: ManyDealers) -> str:
    """The next command; "" at the end of the input. The workers live on meanwhile."""
    dealers.drive(lambda _: False)
    return sys.stdin.readline()


def _push(workers: list[SyntheticWorker], dealers: ManyDealers, *, seconds: float) -> Pushed:
    """All workers push for so long."""
    began = time.monotonic()
    for worker in workers:
        worker.begin_pushing(now=began)
    dealers.schedule_all()
    dealers.drive(lambda now: now > began + seconds)
    took = time.monotonic() - began
    pushed = Pushed(
        seconds=took,
        settled=tuple(worker.settled for worker in workers),
        discarded=sum(worker.discarded for worker in workers),
        round_trip_seconds=_total(worker.round_trips for worker in workers),
        staleness=_total(worker.staleness for worker in workers),
        refused=_refused(workers),
        reasons=_reasons(workers),
        lost=sum(worker.is_over for worker in workers),
    )
    for worker in workers:
        worker.end_pushing()
    return pushed


def _joined(workers: list[SyntheticWorker], began: float) -> Joined:
    joins = [worker.join_seconds for worker in workers if worker.join_seconds is not None]
    ready = [worker.ready_seconds for worker in workers if worker.ready_seconds is not None]
    return Joined(
        began=began,
        ended=began + max(ready, default=0.0),
        join_seconds=Counter(map(bucket_of, joins)),
        ready_seconds=Counter(map(bucket_of, ready)),
        refused=_refused(workers),
        reasons=_reasons(workers),
        missing=len(workers) - len(ready),
    )


def _total(counts: Iterable[Counter[int]]) -> dict[int, int]:
    whole: Counter[int] = Counter()
    for one in counts:
        whole.update(one)
    return whole


def _refused(workers: list[SyntheticWorker]) -> dict[str, int]:
    refused: Counter[str] = Counter()
    for worker in workers:
        refused.update(worker.refused)
    return refused


def _reasons(workers: list[SyntheticWorker]) -> dict[str, str]:
    """A sentence for each code, and under "" the error of a worker that is over."""
    reasons: dict[str, str] = {}
    for worker in workers:
        reasons |= worker.reasons | ({"": worker.error} if worker.is_over else {})
    return reasons
