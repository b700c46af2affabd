"""
The connections of many workers in one thread: one DEALER each, and one wait for all of them.

Vectors go by the wire, as from another host. The machine of each worker decides what it sends, and when.
"""

import contextlib
import heapq
import math
import selectors
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import zmq

from ps_client.machine.effects import Reconnect, Transmit
from ps_common.errors import WireError
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.wire import Buffer, read_to_worker, to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connect, dealer, receive_frames

SPARE_SOCKETS = 64
LINGER_MILLISECONDS = 1000  # for the last messages


class Worker(Protocol):
    """The driver of one connection. `now` is seconds of time.monotonic."""

    def receive(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Transmit | Reconnect]: ...
    def tick(self, *, now: float) -> list[Transmit | Reconnect]: ...
    def next_tick(self, *, now: float) -> float: ...


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class ManyDealers:
    """The thread that calls the methods owns it."""

    def __init__(self, server: str, workers: Sequence[Worker], keys: ClientKeys | None) -> None:
        """`server` is HOST:PORT. Connects every worker. Raises zmq.ZMQError where descriptors are missing."""
        self._server, self._keys = server, keys
        self._workers = workers
        self._context = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 4 * len(workers) + SPARE_SOCKETS)  # closed ones go later
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int]] = []  # a heap of times and workers
        self._sockets: list[zmq.Socket[bytes]] = []
        self._due = [time.monotonic()] * len(workers)
        for number in range(len(workers)):
            self._sockets.append(self._connected(number))
            self._timers.append((self._due[number], number))

    def listen_to(self, stream: HasFileno) -> None:
        """`drive` returns too when this stream can be read."""
        self._selector.register(stream, selectors.EVENT_READ, None)

    def schedule_all(self) -> None:
        """The workers have something new to do."""
        for number in range(len(self._workers)):
            self._schedule(number, now=time.monotonic())

    def drive(self, until: Callable[[float], bool]) -> None:
        """Send and receive until this is true of the time, or the stream can be read."""
        while not until(time.monotonic()):
            due = self._timers[0][0] if self._timers else math.inf
            wait = min(max(0.0, due - time.monotonic()), 0.1)
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    return
                self._receive(key.data)
            self._tick()

    def send(self, number: int, effects: Sequence[Transmit | Reconnect]) -> None:
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

    def close(self) -> None:
        """End all connections; messages that were sent still leave."""
        self._selector.close()
        self._context.destroy(linger=LINGER_MILLISECONDS)

    def _connected(self, number: int) -> zmq.Socket[bytes]:
        socket = dealer(self._context, self._keys)
        connect(socket, self._server)
        self._selector.register(socket.FD, selectors.EVENT_READ, number)
        return socket

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
                self.send(number, worker.receive(message, vector, now=time.monotonic()))
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
                self.send(number, self._workers[number].tick(now=time.monotonic()))
                self._receive(number)
                self._schedule(number, now=time.monotonic())

    def _schedule(self, number: int, *, now: float) -> None:
        """Have this worker ticked in time; earlier entries of the heap are void."""
        if (at := self._workers[number].next_tick(now=now)) < self._due[number]:
            self._due[number] = at
            heapq.heappush(self._timers, (at, number))
