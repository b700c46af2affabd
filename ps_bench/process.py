"""
One process of ps-bench, with as many synthetic workers as it is told (processes.py has what it hears and says).

Vectors go by the wire, as from another host.
"""

import contextlib
import heapq
import math
import random
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import msgspec
import torch
import zmq

from ps_bench.processes import Counts, Push, Report, Workload
from ps_bench.synthetic_worker import SEED_CODEC, SyntheticWorker, Task
from ps_client.machine.effects import Reconnect, Transmit
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_common.errors import WireError
from ps_common.program.start import start
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.names import as_text
from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.sockets.zmq_sockets import connect, dealer, receive_frames, take_every_descriptor_allowed

PROGRAM = "ps-bench"
UNEVEN = 0.2  # of the time between a reply and the next push: so much more or less, or all would push at once
SPARE_SOCKETS = 64
LINGER_MILLISECONDS = 1000  # for the last messages


def work() -> int:
    """Do what the workload says. Raises PsRlError."""
    take_every_descriptor_allowed()
    torch.set_num_threads(1)
    parent: Connection[bytes, bytes] = Connection(sys.stdin.fileno())
    workload = msgspec.json.decode(parent.recv_bytes(), type=Workload)
    process = _LoadProcess(workload, parent)
    try:
        process.join()
        while (push := process.next_push()) is not None:
            process.push(push.seconds)
        process.leave()
    finally:
        process.close()
    return 0


class _LoadProcess:
    """The workers in one thread: a connection each, and one wait for all. Their machines decide what they send."""

    def __init__(self, workload: Workload, parent: "Connection[bytes, bytes]") -> None:
        """Connects every worker. Raises zmq.ZMQError where descriptors are missing."""
        self._workload, self._parent = workload, parent
        self._workers = _synthetic_workers(workload)
        self._count_anew()
        self._context = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 4 * len(self._workers) + SPARE_SOCKETS)  # closed ones go later
        self._selector = selectors.DefaultSelector()
        self._selector.register(parent, selectors.EVENT_READ, None)
        self._sockets = [self._connected(number) for number in range(len(self._workers))]
        self._due = [time.monotonic()] * len(self._workers)
        self._timers = [(due, number) for number, due in enumerate(self._due)]  # a heap

    def join(self) -> None:
        """Drive the workers until each has weights or is over, or time is up."""
        workers, until = self._workers, time.monotonic() + self._workload.join_seconds

        def is_done(now: float) -> bool:
            return now > until or all(worker.ready_seconds is not None or worker.is_over for worker in workers)

        self._drive(is_done)
        self._report(seconds=max(worker.ready_seconds or 0.0 for worker in workers))

    def next_push(self) -> Push | None:
        """The next command; None at the end of the connection. The workers live on meanwhile."""
        self._drive(lambda _: False)
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
        for number in range(len(self._workers)):
            self._schedule(number, now=began)
        self._drive(lambda now: now > began + seconds)
        self._report(seconds=time.monotonic() - began)
        for worker in self._workers:
            worker.end_pushing()

    def leave(self) -> None:
        """Every worker sends GOODBYE, so that the server forgets their leases at once."""
        for number, worker in enumerate(self._workers):
            self._send(number, worker.leave(now=time.monotonic()))

    def close(self) -> None:
        """End all connections; messages that were sent still leave."""
        self._selector.close()
        self._context.destroy(linger=LINGER_MILLISECONDS)

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

    def _drive(self, until: Callable[[float], bool]) -> None:
        """Send and receive until this is true of the time, or the parent speaks."""
        while not until(time.monotonic()):
            due = self._timers[0][0] if self._timers else math.inf
            wait = min(max(0.0, due - time.monotonic()), 0.1)
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    return
                self._receive(key.data)
            self._tick()

    def _send(self, number: int, effects: Sequence[Transmit | Reconnect]) -> None:
        """Carry out what this worker wants done."""
        for effect in effects:
            if isinstance(effect, Reconnect):
                self._selector.unregister(self._sockets[number].FD)
                self._sockets[number].close(linger=0)
                self._sockets[number] = self._connected(number)
            else:
                # Not connected, or the send queue is full: the machine finds out and sends it again.
                with contextlib.suppress(zmq.Again):
                    frames = to_frames(effect.message, effect.vector)
                    self._sockets[number].send_multipart(frames, zmq.NOBLOCK, copy=False)

    def _connected(self, number: int) -> zmq.Socket[bytes]:
        opened = dealer(self._context, self._workload.keys)
        connect(opened, self._workload.server)
        self._selector.register(opened.FD, selectors.EVENT_READ, number)
        return opened

    def _receive(self, number: int) -> None:
        """
        Receive until nothing is left. ZeroMQ's descriptor signals an edge, which a send may consume: so the socket is
        read after each send as well.
        """
        worker, is_new = self._workers[number], False
        while True:
            try:
                frames = receive_frames(self._sockets[number])
            except zmq.Again:
                break
            with contextlib.suppress(WireError):  # not a message of ours: the worker's patience ends it
                message, vector = read_to_worker([frame.buffer for frame in frames])
                self._send(number, worker.receive(message, vector, now=time.monotonic()))
                is_new = True
        if is_new:
            self._schedule(number, now=time.monotonic())

    def _tick(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            at, number = heapq.heappop(self._timers)
            if at == self._due[number]:
                self._due[number] = math.inf
                self._receive(number)  # or a worker would take the server for silent because this thread was late
                self._send(number, self._workers[number].tick(now=time.monotonic()))
                self._receive(number)
                self._schedule(number, now=time.monotonic())

    def _schedule(self, number: int, *, now: float) -> None:
        """Have this worker ticked in time; earlier entries of the heap are void."""
        if (at := self._workers[number].next_tick(now=now)) < self._due[number]:
            self._due[number] = at
            heapq.heappush(self._timers, (at, number))


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
    start("ps_bench.process", "work")
