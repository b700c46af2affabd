"""Bytes of ZMTP 3.0 by hand, for what ZeroMQ itself would not send: messages without an end."""

import socket
from collections.abc import Sequence

# RFC 23: signature, version 3.0, mechanism NULL as a client; then the command READY of a DEALER.
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
# RFC 15, the whole of ZMTP 2.0's greeting: signature, revision, a DEALER, no identity.
OLD_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x01\x05\x00\x00"
MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, *, more: bool) -> bytes:
    flags = (MORE if more else 0) | (LONG if len(body) > 255 else 0)
    return bytes([flags]) + len(body).to_bytes(8 if flags & LONG else 1, "big") + body


def message(frames: Sequence[bytes]) -> bytes:
    return b"".join(frame(body, more=number < len(frames) - 1) for number, body in enumerate(frames))


def connected(endpoint: str) -> socket.socket:
    """A connection that may say anything, as a DEALER. Of what the server says only its greeting is read."""
    host, _, port = endpoint.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=2)
    plain.sendall(GREETING + READY)
    answer = b""
    while b"READY" not in answer:  # what comes before has libzmq end the connection now and then
        part = plain.recv(4096)
        if not part:
            raise ConnectionResetError("ended while hands were shaken")
        answer += part
    return plain
