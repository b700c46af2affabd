"""
TCP connections that violate ZMTP: handshakes with flipped bits, cut short, or sent byte by byte; frames of impossible
sizes; connections closed at any moment. Sockets never block, and the server's bytes are not read.
"""

import contextlib
import random
import socket
import struct
from collections.abc import Callable

from benchmarks.trials.mutations import flipped

GREETING = b"\xff" + b"\x00" * 8 + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\x00") + b"\x00" * 32
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: close with RST


class Junk:
    """Keeps up to `most` such connections open, some of them for long."""

    def __init__(self, endpoint: str, seed: int, *, most: int = 50) -> None:
        host, _, port = endpoint.rpartition(":")
        self._address = host, int(port)
        self._random = random.Random(seed)
        self._most = most
        self._open: list[tuple[socket.socket, bytes]] = []  # with the bytes that are still to be sent, one by one
        self.connections = 0

    def one_more(self) -> None:
        """Open another connection; slow connections send their next byte."""
        self._open = [(sock, _trickle(sock, rest)) for sock, rest in self._open]
        if len(self._open) >= self._most:
            self._cut(self._open.pop(self._random.randrange(len(self._open)))[0])
        sock = socket.create_connection(self._address, timeout=5)
        sock.setblocking(False)
        self.connections += 1
        drawn = self._random
        data = drawn.choice(_WAYS)(drawn)
        if drawn.random() < 0.3:
            self._open.append((sock, data))  # slowly
            return
        _send(sock, data)
        if drawn.random() < 0.5:
            self._open.append((sock, b""))
        else:
            self._cut(sock)

    def close(self) -> None:
        for sock, _ in self._open:
            sock.close()
        self._open.clear()

    def _cut(self, sock: socket.socket) -> None:
        if self._random.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()


def _send(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the server may close the connection or stop reading
        sock.send(data)


def _trickle(sock: socket.socket, rest: bytes) -> bytes:
    _send(sock, rest[:1])
    return rest[1:]


def _half(drawn: random.Random) -> bytes:
    whole = GREETING + READY
    return whole[: drawn.randrange(1, len(whole))]


def _impossible_frame(drawn: random.Random) -> bytes:
    """A correct handshake, then a frame header with a very large size, or an unknown command."""
    size = drawn.choice([0, 2**16, 2**24, 2**24 + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
    flags = drawn.choice([0x02, 0x03, 0x06, 0x07, 0xFF])  # long, and: more to come, a command, reserved
    return GREETING + READY + bytes([flags]) + struct.pack(">Q", size) + drawn.randbytes(drawn.randrange(64))


def _endless_message(drawn: random.Random) -> bytes:
    """Frames whose "more" bit announces another one, which never comes."""
    return GREETING + READY + b"\x01\x07ps-rl/1" + b"\x01\x01x" * drawn.randrange(1000)


_WAYS: tuple[Callable[[random.Random], bytes], ...] = (
    lambda drawn: drawn.randbytes(drawn.randrange(1, 300)),
    lambda drawn: flipped(GREETING, drawn, most=4) + READY,
    lambda drawn: GREETING + flipped(READY, drawn, most=4),
    lambda drawn: GREETING + READY + drawn.randbytes(drawn.randrange(1, 300)),
    _half,
    _impossible_frame,
    _endless_message,
)
