"""
The connections of the server's socket. Those that hold too much memory, or take the last descriptors, are cut off.

ZeroMQ buffers a message until its last frame has arrived, without any limit or report. Therefore bytes are counted
here: ZeroMQ's monitor names the descriptor of each connection, the kernel counts the bytes that the connection has
received, and each message names its connection. connection_limits.py decides which are cut off. (Linux only.)
"""

import array
import contextlib
import fcntl
import logging
import os
import resource
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence

import zmq

from ps_common.program.resources import bytes_in_use, give_back_freed_memory
from ps_server.shell.connection_limits import (
    QUIET_BYTES,
    Connection,
    IsKnown,
    holding_too_much,
    one_too_many,
)

LOOK_SECONDS = 0.02  # between two checks of the memory in use; a gigabyte a second may arrive
FULL_LOOK_SECONDS = 0.25  # between two checks of every connection, unless memory has grown
GROWN_BYTES = 2**24
SHARE = 0.02  # the share of the time that checks may take, where connections are thousands
BUDGETS, VECTORS = 2, 32  # memory of the process: push budgets; vectors (weights, slots, copies sent or saved)
MOST_RESERVED = 1024  # descriptors kept free for checkpoints, records, shared memory and the next connection
TCP_INFO_BYTES = 136
BYTES_RECEIVED_AT = 128  # in struct tcp_info
SO_COOKIE = 57
CURVE_FRAME_BYTES = 33  # what CURVE adds to a frame: "\x07MESSAGE", a nonce, flags, and a tag

log = logging.getLogger("ps-server")


class Connections:
    """The connections of one ROUTER. The serving thread owns them. `now` is seconds of time.monotonic."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        *,
        vector_bytes: Callable[[], int],
        run_bytes: Callable[[], int],
        is_known: IsKnown,
        budget_bytes: int,
        is_locked: bool,
    ) -> None:
        """
        To be created before the socket is bound.

        `vector_bytes`: size of the longest vector that a peer may send now; `run_bytes`: size of the weights, 0 while
        there are none; `budget_bytes`: the push budget.
        """
        self._vector_bytes, self._run_bytes, self._is_known = vector_bytes, run_bytes, is_known
        self._budget_bytes = budget_bytes
        self._frame_bytes = CURVE_FRAME_BYTES if is_locked else 0
        self._by_descriptor: dict[int, Connection] = {}
        self._sockets: dict[int, socket.socket] = {}  # borrowed from ZeroMQ, which closes them
        self._router = router
        self._monitor: zmq.Socket[bytes] | None = None
        self._start_bytes = self._looked_bytes = bytes_in_use()
        self._look_at = self._full_look_at = self._count_at = 0.0
        self._give_back_at = float("inf")
        self._taken = 0  # messages since the last full check
        self._is_drained = True  # whether the socket was empty since then
        self._cut_off = 0
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._first_reserved = self._descriptors - min(MOST_RESERVED, self._descriptors // 4)
        if sys.platform == "linux":
            self._monitor = context.socket(zmq.PAIR)
            self._monitor.setsockopt(zmq.RCVHWM, 0)  # with a limit, ZeroMQ's IO thread would block on us
            address = f"inproc://connections-{id(self)}"
            router.monitor(address, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
            self._monitor.connect(address)

    def __len__(self) -> int:
        """How many there are; 0 where they are not counted."""
        return len(self._by_descriptor)

    @property
    def next_look(self) -> float:
        """When the next `look` is due."""
        return self._look_at if self._monitor is not None else float("inf")

    def delivered(self, frames: Sequence[zmq.Frame], *, now: float) -> None:
        """Count a message that was read from the socket; the first frame names its sender."""
        self._taken += 1
        try:
            descriptor = int(frames[-1].get(zmq.SRCFD))
        except zmq.ZMQError:  # a peer of ZMTP before 3.0, or one that was gone at once: its bytes count as undelivered
            return
        if descriptor not in self._by_descriptor:
            self._read_monitor(now=now)  # the first message may overtake the monitor's event
        if (connection := self._by_descriptor.get(descriptor)) is not None:
            connection.peer, connection.delivered_at = frames[0].bytes, now
            connection.delivered += sum(map(self._on_the_wire, frames[1:]))

    def drained(self) -> None:
        """The socket holds no complete message at this moment."""
        self._is_drained = True

    def look(self, *, now: float) -> None:
        """Cut off connections that hold too much. Cheap, unless memory has grown or some time has passed."""
        if now < self.next_look:
            return
        self._look_at = now + LOOK_SECONDS
        self._read_monitor(now=now)
        self._keep_reserve(now=now)
        # The socket reads its connections in turn: after so many messages, each that waited has been read.
        is_round = self._is_drained or self._taken > len(self._by_descriptor)
        used = bytes_in_use()
        if is_round and (now >= self._full_look_at or used > self._looked_bytes + GROWN_BYTES):
            began = time.thread_time()  # not of the clock: when others have the processor, looks are needed most
            self._look_at_all(used, now=now)
            self._looked_bytes = used
            took = time.thread_time() - began
            self._full_look_at = now + max(FULL_LOOK_SECONDS, took / SHARE)
            self._look_at = now + max(LOOK_SECONDS, took / SHARE)
        if now >= self._give_back_at:
            self._give_back_at = float("inf")
            give_back_freed_memory()

    def close(self) -> None:
        """To be called before the context ends."""
        if self._monitor is not None:
            self._router.disable_monitor()
            self._monitor.close(linger=0)
            self._monitor = None
        for descriptor in list(self._by_descriptor):
            self._forget(descriptor)

    def _on_the_wire(self, frame: zmq.Frame) -> int:
        size = len(frame) + self._frame_bytes
        return size + (2 if size <= 255 else 9)

    def _look_at_all(self, used: int, *, now: float) -> None:
        for descriptor, connection in self._by_descriptor.items():
            with contextlib.suppress(OSError):  # the connection has ended; the monitor's event follows
                received = _received(self._sockets[descriptor])
                if connection.bytes_held(received) > QUIET_BYTES:
                    received -= _unread(descriptor)
                connection.look(received)
        self._taken, self._is_drained = 0, False
        cut = holding_too_much(
            self._by_descriptor.values(),
            vector_bytes=self._vector_bytes(),
            budget_bytes=self._budget_bytes,
            is_short=used > self._start_bytes + self._expected_bytes(),
            is_known=self._is_known,
            now=now,
        )
        if cut:
            self._cut(cut, "memory")
            self._give_back_at = now + 2 * FULL_LOOK_SECONDS

    def _expected_bytes(self) -> int:
        """What the process may take beyond its start. The first vector may be as long as the protocol allows."""
        return BUDGETS * self._budget_bytes + VECTORS * self._run_bytes() + self._vector_bytes()

    def _keep_reserve(self, *, now: float) -> None:
        """Keep some descriptors free for the server itself."""
        if now < self._count_at:
            return
        try:
            lowest = os.dup(self._router.fileno())  # the lowest free descriptor
            os.close(lowest)
        except OSError:  # none is free
            lowest = self._descriptors
        if lowest > self._first_reserved:
            missing = lowest - self._first_reserved
            self._cut(one_too_many(self._by_descriptor.values(), count=missing, is_known=self._is_known), "descriptors")
            self._count_at = now + FULL_LOOK_SECONDS  # ZeroMQ has closed them by then

    def _cut(self, connections: Sequence[Connection], why: str) -> None:
        for connection in connections:
            borrowed = self._sockets[connection.descriptor]
            with contextlib.suppress(OSError):  # the connection has ended by itself
                if borrowed.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8) == connection.identity:
                    self._log_cut(borrowed.getpeername()[0], connection, why)
                    borrowed.shutdown(socket.SHUT_RDWR)  # ZeroMQ sees the end, and frees its buffers
            self._forget(connection.descriptor)

    def _log_cut(self, host: str, connection: Connection, why: str) -> None:
        self._cut_off += 1
        if self._cut_off & (self._cut_off - 1) == 0:  # 1, 2, 4, …: a peer that reconnects must not fill the disk
            who = "a worker" if self._is_known(connection.peer) else "an unknown peer"
            log.warning(
                "cut off: a connection of %s at %s, to save %s; it held %d bytes of an unfinished message "
                "(%d connections so far)", who, host, why, connection.unfinished, self._cut_off,
            )  # fmt: skip

    def _read_monitor(self, *, now: float) -> None:
        """Events of connections that were accepted or have ended."""
        while self._monitor is not None:
            try:
                event, descriptor = struct.unpack("=Hi", self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                return
            self._forget(descriptor)
            if event == zmq.EVENT_ACCEPTED:
                self._adopt(descriptor, now=now)

    def _adopt(self, descriptor: int, *, now: float) -> None:
        borrowed = None
        try:
            borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
            identity = borrowed.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)
        except OSError:  # the connection has ended, and its descriptor is closed or belongs to a file
            if borrowed is not None:
                borrowed.detach()  # ZeroMQ closes its descriptors itself
            return
        self._sockets[descriptor] = borrowed
        self._by_descriptor[descriptor] = Connection(descriptor, identity, since=now)

    def _forget(self, descriptor: int) -> None:
        if self._by_descriptor.pop(descriptor, None) is not None:
            self._sockets.pop(descriptor).detach()


def _received(borrowed: socket.socket) -> int:
    """Bytes that the kernel has received on this connection."""
    info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=Q", info, BYTES_RECEIVED_AT)[0])


def _unread(descriptor: int) -> int:
    """Received bytes that ZeroMQ has not read yet; whole messages may be among them."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]
