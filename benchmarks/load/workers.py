"""
Many synthetic workers in one thread: a connection each, and one wait for all. Their machines decide what they send.

Vectors travel by tcp, as from another host.
"""

import contextlib
import heapq
import math
import random
import resource
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Self

import torch
import zmq

from benchmarks.load.synthetic_worker import SEED_CODEC, Counts, SyntheticWorker, Task
from ps_client.machine.effects import Reconnect, Transmit
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_common.errors import SettingsError, WireError
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.names import as_text
from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import (
    connect,
    dealer,
    receive_frames,
    take_every_descriptor_allowed,
)

RUN = RunSpec(preset="load-test")  # what the workers propose to a server without a run
UNEVEN = 0.2  # of a pause, at most more or less: equal ones would have all workers push at once
DESCRIPTORS_A_WORKER = 2  # its connection, and the one by which ZeroMQ wakes its thread
SPARE_DESCRIPTORS = SPARE_SOCKETS = 64
LINGER_MILLISECONDS = 1000  # for the last messages


class SyntheticWorkers:
    """Use it as a context manager: the connections begin with the block, and end with it."""

    def __init__(
        self,
        server: str,
        names: Sequence[str],
        schema: Schema,
        *,
        gradient_codec: str,
        weight_codec: str,
        compute_seconds: float = 0.0,
        keys: ClientKeys | None = None,
    ) -> None:
        """`compute_seconds`: the mean pause after each reply. Raises SettingsError where descriptors are too few."""
        torch.set_num_threads(1)
        take_every_descriptor_allowed()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        needed = DESCRIPTORS_A_WORKER * len(names) + SPARE_DESCRIPTORS
        if needed > most != resource.RLIM_INFINITY:
            raise SettingsError(
                f"--workers {len(names)}: takes {needed} descriptors of {most}: raise the limit "
                f"(ulimit -Hn {needed}, as root), or start several tests with fewer"
            )
        self._server, self._names, self._keys = server, names, keys
        zeros, drawn = torch.zeros(schema.size), random.Random(names[0])
        self._task = Task(
            schema,
            seed=[CODECS[SEED_CODEC].encode(zeros, schema.statistics)],
            gradient=[CODECS[gradient_codec].encode(zeros, schema.statistics)],
            gradient_codec=gradient_codec,
            weight_codec=weight_codec,
            pause=lambda: compute_seconds * drawn.uniform(1 - UNEVEN, 1 + UNEVEN),
        )
        self.counts = Counts()

    def __enter__(self) -> Self:
        self._context = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 4 * len(self._names) + SPARE_SOCKETS)  # closed ones go later
        self._selector = selectors.DefaultSelector()
        self._sockets = [self._connected(number) for number in range(len(self._names))]
        now = time.monotonic()
        self._workers = [
            SyntheticWorker(_machine(name, now=now), self._task, self.counts, now=now) for name in self._names
        ]
        self._due = [now] * len(self._workers)
        self._timers = [(due, number) for number, due in enumerate(self._due)]  # a heap
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._context.destroy(linger=LINGER_MILLISECONDS)

    def join(self, *, within_seconds: float) -> None:
        """Drive the workers until each has weights or is over, or time is up."""
        workers, until = self._workers, time.monotonic() + within_seconds
        self._drive(lambda now: now > until or all(worker.is_ready or worker.is_over for worker in workers))

    def push(self, seconds: float) -> list[int]:
        """All workers push for this time. Returns the pushes that were applied, by worker."""
        began = time.monotonic()
        for number, worker in enumerate(self._workers):
            worker.begin_pushing(now=began)
            self._schedule(number, now=began)
        self._drive(lambda now: now > began + seconds)
        for worker in self._workers:
            worker.end_pushing()
        return [worker.settled for worker in self._workers]

    def leave(self) -> None:
        """Every worker sends GOODBYE, so that the server forgets their leases at once."""
        for number, worker in enumerate(self._workers):
            self._send(number, worker.leave(now=time.monotonic()))

    def lost(self) -> list[str]:
        """Why workers have given up, one sentence each."""
        return [worker.error for worker in self._workers if worker.is_over]

    def _drive(self, until: Callable[[float], bool]) -> None:
        """Send and receive until this is true of the time."""
        while not until(time.monotonic()):
            due = self._timers[0][0] if self._timers else math.inf
            wait = min(max(0.0, due - time.monotonic()), 0.1)
            for key, _ in self._selector.select(wait):
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
        opened = dealer(self._context, self._keys)
        connect(opened, self._server)
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


def _machine(name: str, *, now: float) -> ParameterClient:
    identity = Identity(
        worker_id=name,
        secret=secrets.token_hex(16),
        overrides={},
        proposed_run=RUN.to_dict(),
        host=as_text(socket.gethostname()),
        environments=1,
    )
    # Nothing is kept for a restored server: pushes are zeros.
    return ParameterClient(identity, patience_seconds=60, resend_bytes=0, now=now)
