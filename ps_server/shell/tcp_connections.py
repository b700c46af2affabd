"""
The TCP connections of one ZeroMQ socket, with counters of their bytes. (Linux only: elsewhere there are none.)

ZeroMQ buffers a message until its last frame has arrived, without any limit or report. Therefore bytes are counted
here: ZeroMQ's monitor names the descriptor of each connection, the kernel counts the bytes that the connection has
received, and each message names its connection. Once every complete message has been read, the bytes that a
connection received and did not deliver belong to an unfinished message.
"""

import array
import contextlib
import fcntl
import itertools
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

SLACK_BYTES = 2**16  # framing of vector and header
QUIET_BYTES = 2**12  # an unfinished message this small is ignored
LOOK_SECONDS = 0.02  # between two checks; a gigabyte a second may arrive
OVERHEAD_BYTES = 2**10  # most that is no message (handshake, heartbeats) between two checks with messages
TCP_INFO_BYTES = 136
BYTES_ACKED_AT, BYTES_RECEIVED_AT = 120, 128  # in struct tcp_info
SO_COOKIE = 57
CURVE_FRAME_BYTES = 33  # what CURVE adds to a frame: "\x07MESSAGE", a nonce, flags, and a tag
_numbers = itertools.count(1)  # of monitors in this process


@dataclass(eq=False)
class Connection:
    """One connection and its counters of bytes, as on the wire."""

    descriptor: int
    identity: bytes  # the kernel's cookie; descriptors are reused
    since: float
    delivered_at: float = field(init=False)  # time of its last message, or of the connection
    taken_at: float = field(init=False)  # when the peer last took something, or nothing waited for it
    delivered: int = 0
    unfinished: int = 0
    _overhead: int = 0
    _held: int = 0  # at the last check
    _looked_at: int = 0  # `delivered` at the last check
    _acknowledged: int = 0

    @property
    def has_delivered(self) -> bool:
        """Whether a message came on it: at a locked port, whether its peer has a key."""
        return self.delivered > 0

    def __post_init__(self) -> None:
        self.delivered_at = self.taken_at = self.since

    def bytes_held(self, received: int) -> int:
        """Bytes received and not delivered: of complete messages that wait, and of an unfinished one."""
        return max(0, received - self.delivered - self._overhead)

    def look(self, received: int) -> None:
        """The bytes received so far. Every message that was complete at the last check has been read since."""
        held = self.bytes_held(received)
        if self.delivered == self._looked_at:
            self.unfinished = min(held, self._held)
        else:
            self.unfinished, self._looked_at = 0, self.delivered
            overhead = min(held, OVERHEAD_BYTES)
            self._overhead += overhead
            held -= overhead
        self._held = held

    def look_out(self, acknowledged: int, waiting: int, *, now: float) -> None:
        """The bytes that the peer's host has acknowledged so far, and those in the kernel that wait for it."""
        if waiting <= QUIET_BYTES or acknowledged != self._acknowledged:
            self.taken_at, self._acknowledged = now, acknowledged


class TcpConnections:
    """Those of a socket that is not bound or connected yet. Its thread owns them."""

    def __init__(self, context: zmq.Context[Any], monitored: zmq.Socket[bytes], *, is_locked: bool) -> None:
        self.by_descriptor: dict[int, Connection] = {}
        self._frame_bytes = CURVE_FRAME_BYTES if is_locked else 0
        self._sockets: dict[int, socket.socket] = {}  # borrowed from ZeroMQ, which closes them
        self._monitored = monitored
        self._monitor: zmq.Socket[bytes] | None = None
        if sys.platform == "linux":
            # A name is never used again: ZeroMQ gives it free some time after the socket that had it was closed.
            address = f"inproc://connections-{next(_numbers)}"
            monitored.monitor(address, zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
            self._monitor = zmq.Context.shadow(context.underlying).socket(zmq.PAIR)  # whatever loop the others wait in
            self._monitor.setsockopt(zmq.RCVHWM, 0)  # with a limit, ZeroMQ's IO thread would block on us
            self._monitor.connect(address)

    @property
    def are_counted(self) -> bool:
        """Whether this system counts bytes."""
        return self._monitor is not None

    def delivered(self, frames: Sequence[zmq.Frame], *, now: float) -> Connection | None:
        """Count a message that was read from the socket; the connection that it came on, if that is known."""
        try:
            descriptor = int(frames[-1].get(zmq.SRCFD))
        except zmq.ZMQError:  # a peer of ZMTP before 3.0, or one that was gone at once: its bytes count as undelivered
            return None
        if descriptor not in self.by_descriptor:
            self.read_monitor(now=now)  # the first message may overtake the monitor's event
        if (connection := self.by_descriptor.get(descriptor)) is not None:
            connection.delivered_at = now
            connection.delivered += sum(map(self._on_the_wire, frames))
        return connection

    def look(self, *, now: float) -> None:
        """Read the counters. Every message that was complete at the last look has been read from the socket since."""
        self.read_monitor(now=now)
        for descriptor, connection in self.by_descriptor.items():
            with contextlib.suppress(OSError):  # the connection has ended; the monitor's event follows
                acknowledged, received = _counters(self._sockets[descriptor])
                if connection.bytes_held(received) > QUIET_BYTES:
                    received -= _waiting(descriptor, termios.FIONREAD)  # whole messages may be among them
                connection.look(received)
                connection.look_out(acknowledged, _waiting(descriptor, termios.TIOCOUTQ), now=now)

    def cut(self, connection: Connection) -> str:
        """Cut a connection off; the address of its peer, "" where it has ended by itself."""
        host, borrowed = "", self._sockets[connection.descriptor]
        with contextlib.suppress(OSError):
            if borrowed.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8) == connection.identity:
                host = str(borrowed.getpeername()[0])
                borrowed.shutdown(socket.SHUT_RDWR)  # ZeroMQ sees the end, and frees its buffers
        self._forget(connection.descriptor)
        return host

    def close(self) -> None:
        """To be called before the context ends."""
        if self._monitor is not None:
            self._monitored.disable_monitor()
            self._monitor.close(linger=0)
            self._monitor = None
        for descriptor in list(self.by_descriptor):
            self._forget(descriptor)

    def read_monitor(self, *, now: float) -> None:
        """Events of connections that are there since, or have ended."""
        while self._monitor is not None:
            try:
                event, descriptor = struct.unpack("=Hi", self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                return
            self._forget(descriptor)
            if event != zmq.EVENT_DISCONNECTED:
                self._adopt(descriptor, now=now)

    def _on_the_wire(self, frame: zmq.Frame) -> int:
        size = len(frame) + self._frame_bytes
        return size + (2 if size <= 255 else 9)

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
        self.by_descriptor[descriptor] = Connection(descriptor, identity, since=now)

    def _forget(self, descriptor: int) -> None:
        if self.by_descriptor.pop(descriptor, None) is not None:
            self._sockets.pop(descriptor).detach()


def _counters(borrowed: socket.socket) -> tuple[int, int]:
    """Bytes of this connection that the peer's host has acknowledged, and those that the kernel has received."""
    info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    acknowledged, received = struct.unpack_from("=QQ", info, BYTES_ACKED_AT)
    return int(acknowledged), int(received)


def _waiting(descriptor: int, direction: int) -> int:
    """Bytes in the kernel that ZeroMQ has not read yet (FIONREAD), or the peer's host has not (TIOCOUTQ)."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, direction, count)
    return count[0]
