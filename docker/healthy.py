"""
healthy.py HOST:PORT [SERVER_KEY SECRET_KEY]: whether a ps-server answers there, as its exit status.

An engine asks every few seconds, also on a machine that has no time: this starts in a fifth of the time of `ps-ctl
status`, since it knows one message and reads no reply.
"""

import sys
from collections.abc import Sequence

import zmq
import zmq.auth

STATUS_REQUEST = [b"ps-rl/1", b"\x82\xa4type\xaeSTATUS_REQUEST\xa7request\x01"]
MILLISECONDS = 15_000


def is_healthy(address: str, keys: Sequence[str] = ()) -> bool:
    """Whether the server replies. `keys` are the files of its public key and of a secret one that it knows."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        if keys:
            socket.curve_serverkey, _ = zmq.auth.load_certificate(keys[0])
            socket.curve_publickey, socket.curve_secretkey = zmq.auth.load_certificate(keys[1])
        socket.connect(f"tcp://{address}")
        socket.send_multipart(STATUS_REQUEST)
        return bool(socket.poll(MILLISECONDS))


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1], sys.argv[2:]))
