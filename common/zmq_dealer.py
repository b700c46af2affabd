"""The socket of whoever stays connected to a server: a worker, a standby."""

from typing import Any

import zmq

from common.curve import ClientKeys
from common.wire import MAX_FRAME_BYTES

HIGH_WATER = 16  # whole messages, in either direction


def dealer(context: zmq.Context[Any], keys: ClientKeys | None) -> zmq.Socket[bytes]:
    """
    A DEALER with every option set on purpose, still to be connected. With keys it talks to nobody but whom they name.

    It has no routing id of its own: the server gives each connection a new one, and HELLO tells who we are.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    # Nothing is queued for a connection that does not stand: it would arrive before HELLO, or twice.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    # From 0.1 s, doubling to 0.5 s: a hundred workers must not knock ten times a second each, and a server that came
    # back, which takes some two seconds, must not wait for them as long again. One that was replaced hears it at once.
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 5000)
    if keys is not None:
        keys.lock(socket)
    return socket
