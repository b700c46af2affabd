"""
The socket of whoever stays connected to a server: a worker, a standby.

Messages off a socket, frame by frame.

Where ZeroMQ's sockets connect and listen: which family of addresses a host has, and what to say of one without any.

ZeroMQ takes a socket for IPv4 or for IPv6, as it is told. A name with addresses of both is taken for IPv4: a server
that listens on 0.0.0.0 is not reached otherwise.
"""

import socket
from typing import Any

import zmq

from common.protocol.addresses import bare_host, is_ipv6, join_address, split_address
from common.protocol.wire import MAX_FRAME_BYTES, MAX_FRAMES
from common.sockets.curve import ClientKeys

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


# Beside those of a message: its sender's name, places in memory, and one that shows that there are too many.
MOST_FRAMES = MAX_FRAMES + 3
_AT_ONCE = int(zmq.NOBLOCK)


def receive_frames(socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """
    The frames of the message that waits; of one that has too many, as many as show it. Raises zmq.Again if none waits.

    pyzmq's recv_multipart asks the socket after each frame whether there are more, which the frame knows. That takes
    three times as long, and nobody else is served while a message of thousands of empty frames is read.
    """
    frames = [frame := socket.recv(_AT_ONCE, copy=False)]
    while frame.more:
        frame = socket.recv(_AT_ONCE, copy=False)
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
    return frames


def connect(sock: zmq.Socket[Any], address: str) -> None:
    """Connect to HOST:PORT. ZeroMQ goes on trying, and looks the name up each time."""
    host, port = split_address(address)
    families, _ = _families(host)
    sock.setsockopt(zmq.IPV6, int(families == {socket.AF_INET6}))
    sock.connect(f"tcp://{join_address(host, port)}")


def why_no_address(address: str) -> str:
    """Why the host of HOST:PORT has no address just now, in words; "" when it has one. May ask a server for names."""
    host, _ = split_address(address)
    _, why = _families(host)
    return why


def bind(sock: zmq.Socket[Any], host: str, port: int) -> tuple[str, int]:
    """
    Listen on an address, a name of this machine, an interface, or all (*, ::); port 0 takes a free one.

    Returns the address and the port that are listened on. Raises zmq.ZMQError; for a name without an address OSError or
    UnicodeError.
    """
    where = _bindable(bare_host(host))
    sock.setsockopt(zmq.IPV6, int(is_ipv6(where)))
    sock.bind(f"tcp://[{where}]:{port or '*'}" if is_ipv6(where) else f"tcp://{where}:{port or '*'}")
    return split_address(sock.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))


def _families(host: str) -> tuple[set[int], str]:
    """Of a host's addresses; and why it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name has such parts
        return set(), f"the name {host} has no address here: {getattr(error, 'strerror', None) or error}"
    return {family for family, *_ in found}, ""


def _bindable(host: str) -> str:
    """What ZeroMQ can listen on: it takes addresses and interfaces, and no names."""
    if host == "*" or is_ipv6(host) or host in (name for _, name in socket.if_nameindex()):
        return host
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    by_family = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return str(by_family[0][4][0])
