"""One process of ps-bench, with as many synthetic workers as it is told (processes.py has what it hears and says)."""

import random
import secrets
import socket
import sys
import time
from multiprocessing.connection import Connection
from typing import NoReturn

import msgspec
import torch

from ps_bench.many_dealers import ManyDealers
from ps_bench.processes import Counts, Push, Report, Workload
from ps_bench.synthetic_worker import SEED_CODEC, SyntheticWorker, Task
from ps_client.machine.identity import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_common.program.run_program import run_program
from ps_common.program.start import start
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.names import as_text
from ps_common.protocol.tensors import Schema
from ps_common.sockets.zmq_sockets import take_every_descriptor_allowed

UNEVEN = 0.2  # of the time between a reply and the next push: so much more or less, or all would push at once
GOODBYE_SECONDS = 1.0


def main() -> NoReturn:
    """The process."""
    run_program(work, "ps-bench")


def work() -> int:
    """Do what the workload says. Raises PsRlError."""
    take_every_descriptor_allowed()
    torch.set_num_threads(1)
    parent: Connection[bytes, bytes] = Connection(sys.stdin.fileno())
    workload = msgspec.json.decode(parent.recv_bytes(), type=Workload)
    process = _LoadProcess(workload, parent)
    try:
        process.join(within_seconds=workload.join_seconds)
        while (push := process.next_push()) is not None:
            process.push(push.seconds)
        process.leave()
    finally:
        process.dealers.close()
    return 0


class _LoadProcess:
    """The workers, and their connections."""

    def __init__(self, workload: Workload, parent: "Connection[bytes, bytes]") -> None:
        self._parent = parent
        self._workers = _synthetic_workers(workload)
        self._count_anew()
        self.dealers = ManyDealers(workload.server, self._workers, workload.keys)
        self.dealers.listen_to(parent)

    def join(self, *, within_seconds: float) -> None:
        """Drive the workers until each has weights or is over, or time is up."""
        workers, until = self._workers, time.monotonic() + within_seconds

        def is_done(now: float) -> bool:
            return now > until or all(worker.ready_seconds is not None or worker.is_over for worker in workers)

        self.dealers.drive(is_done)
        self._report(seconds=max(worker.ready_seconds or 0.0 for worker in workers))

    def next_push(self) -> Push | None:
        """The next command; None at the end of the connection. The workers live on meanwhile."""
        self.dealers.drive(lambda _: False)
        try:
            return msgspec.json.decode(self._parent.recv_bytes(), type=Push)
        except EOFError:
            return None

    def push(self, seconds: float) -> None:
        """All workers push for so long."""
        self._count_anew()
        began = time.monotonic()
        for worker in self._workers:
            worker.begin_pushing(now=began)
        self.dealers.schedule_all()
        self.dealers.drive(lambda now: now > began + seconds)
        self._report(seconds=time.monotonic() - began)
        for worker in self._workers:
            worker.end_pushing()

    def leave(self) -> None:
        """Every worker sends GOODBYE, so that the server forgets their leases at once."""
        for number, worker in enumerate(self._workers):
            self.dealers.send(number, worker.leave(now=time.monotonic()))
        end = time.monotonic() + GOODBYE_SECONDS
        self.dealers.drive(lambda now: now > end)

    def _count_anew(self) -> None:
        self._began, self._counts = time.time(), Counts()
        for worker in self._workers:
            worker.counts = self._counts

    def _report(self, *, seconds: float) -> None:
        over = [worker for worker in self._workers if worker.is_over]
        for worker in over:
            self._counts.reasons[""] = worker.error
        settled = tuple(worker.settled for worker in self._workers)
        report = Report(began=self._began, seconds=seconds, counts=self._counts, settled=settled, lost=len(over))
        self._parent.send_bytes(msgspec.json.encode(report))


def _synthetic_workers(workload: Workload) -> list[SyntheticWorker]:
    """The workers, still without a connection."""
    schema = Schema(workload.schema)
    zeros = torch.zeros(schema.size)
    drawn, compute = random.Random(workload.names[0]), workload.compute_seconds
    task = Task(
        schema,
        # A run that is not made for load tests gets no weights, even if it has lost its own.
        seed=[CODECS[SEED_CODEC].encode(zeros, schema.statistics)] if workload.steps else [],
        gradient=[CODECS[workload.gradient_codec].encode(zeros, schema.statistics)],
        gradient_codec=workload.gradient_codec,
        weight_codec=workload.weight_codec,
        steps=workload.steps,
        pause=lambda: compute * drawn.uniform(1 - UNEVEN, 1 + UNEVEN),
    )
    now = time.monotonic()
    return [SyntheticWorker(_machine(name, workload, now=now), task, now=now) for name in workload.names]


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


if __name__ == "__main__":
    start("ps_bench.process")
