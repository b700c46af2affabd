"""
ZeroMQ sockets: the options of a DEALER, addresses to connect to and listen on, and messages as frames.

ZeroMQ uses IPv4 or IPv6 for a socket, as an option decides. A host name with addresses of both is connected to over
IPv4: a server that listens on 0.0.0.0 would not be reached otherwise.
"""

import contextlib
import resource
import socket
from collections.abc import Sequence
from typing import Any

import zmq

from ps_common.errors import ServerUnreachable, SettingsError
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.names import bare_host, check_address, is_ipv6, join_address, split_address
from ps_common.protocol.wire import MAX_FRAME_BYTES, MAX_FRAMES, Buffer, read_to_worker
from ps_common.sockets.curve import ClientKeys

HIGH_WATER = 16  # whole messages, in either direction
# In addition to the frames of a message: the sender's id, places in a mapped segment, and one that shows excess.
MOST_FRAMES = MAX_FRAMES + 3
_AT_ONCE, _MORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
# A buffer of at most this many bytes is copied into its frame. When a frame that refers to one is dropped, pyzmq's own
# thread is notified, which takes longer than the copy.
COPIED_BYTES = 2**20


def dealer(context: zmq.Context[Any], keys: ClientKeys | None) -> zmq.Socket[bytes]:
    """
    The DEALER of a worker or a standby, still to be connected. With keys it accepts only the server that they name.

    It sets no routing id: the server gives each connection a new one, and HELLO names the worker.
    """
    sock: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    # Nothing is queued while there is no connection: a message would arrive before HELLO, or twice.
    sock.setsockopt(zmq.IMMEDIATE, 1)
    sock.setsockopt(zmq.SNDHWM, HIGH_WATER)
    sock.setsockopt(zmq.RCVHWM, HIGH_WATER)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    # From 0.1 s, doubling to 0.5 s: a hundred workers must not try ten times a second each, and a restarted server,
    # which takes about two seconds, must not wait for them as long again.
    sock.setsockopt(zmq.RECONNECT_IVL, 100)
    sock.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    sock.setsockopt(zmq.CONNECT_TIMEOUT, 5000)
    if keys is not None:
        keys.lock(sock)
    return sock


def connect(sock: zmq.Socket[Any], address: str, *, over_ipv6: bool | None = None) -> None:
    """
    Connect to HOST:PORT. ZeroMQ keeps trying, and resolves the name each time.

    `over_ipv6`: what `look_up` has found; without it that is called here.
    """
    host, port = split_address(address)
    if over_ipv6 is None:
        over_ipv6, _ = look_up(address)
    sock.setsockopt(zmq.IPV6, int(over_ipv6 or False))
    sock.connect(f"tcp://{join_address(host, port)}")


def look_up(address: str) -> tuple[bool | None, str]:
    """
    Whether the host of HOST:PORT has addresses of IPv6 alone; None where it has no address now, and why, in words.

    May query a name server.
    """
    host, _ = split_address(address)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name has such parts
        return None, f"the name {host} has no address here: {getattr(error, 'strerror', None) or error}"
    return {family for family, *_ in found} == {socket.AF_INET6}, ""


def connected(
    context: zmq.Context[Any], address: str, keys: ClientKeys | None, *, waits: bool = False
) -> zmq.Socket[bytes]:
    """
    A DEALER that is connected to HOST:PORT. Raises ServerUnreachable for another text, or a name without an address.

    `waits`: what is sent before there is a connection waits for one.
    """
    try:
        check_address("the address", address)
    except SettingsError as error:
        raise ServerUnreachable(str(error)) from error
    over_ipv6, why = look_up(address)
    if why:
        raise ServerUnreachable(f"{address}: {why}")
    sock = dealer(context, keys)
    sock.setsockopt(zmq.IMMEDIATE, int(not waits))
    sock.setsockopt(zmq.LINGER, 0)
    connect(sock, address, over_ipv6=over_ipv6)
    return sock


def read_message(sock: zmq.Socket[Any]) -> tuple[ToWorker, Sequence[Buffer]]:
    """The message of a server that has arrived, and its vector. Raises zmq.Again without one, WireError."""
    return read_to_worker([frame.buffer for frame in receive_frames(sock)])


def bind(sock: zmq.Socket[Any], host: str, port: int) -> tuple[str, int]:
    """
    Listen on an address, a name of this machine, an interface, or all (*, ::); port 0 takes a free one.

    Returns the address and the port. Raises zmq.ZMQError; OSError or UnicodeError for a name without an address.
    """
    where = _bindable(bare_host(host))
    sock.setsockopt(zmq.IPV6, int(is_ipv6(where)))
    sock.bind(f"tcp://[{where}]:{port or '*'}" if is_ipv6(where) else f"tcp://{where}:{port or '*'}")
    return split_address(sock.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))


def receive_frames(sock: zmq.Socket[Any]) -> list[zmq.Frame]:
    """
    The frames of the message that has arrived, at most MOST_FRAMES of them. Raises zmq.Again without a message.

    pyzmq's recv_multipart asks the socket after each frame for more, which the frame knows. That takes three times as
    long, and a message of thousands of empty frames would keep all others waiting.
    """
    frames = [frame := sock.recv(_AT_ONCE, copy=False)]
    while frame.more:
        frame = sock.recv(_AT_ONCE, copy=False)
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
    return frames


def send_frames(sock: zmq.Socket[Any], frames: Sequence[Buffer | zmq.Frame]) -> None:
    """
    Send the frames of a message, or raise zmq.Again. Long buffers are referred to, and must not change any more.

    pyzmq's send_multipart checks each frame, and with copy=False makes an object of it: twice the time for short ones.
    """
    for frame in frames[:-1]:
        sock.send(frame, _AT_ONCE | _MORE, copy=len(frame) <= COPIED_BYTES)
    sock.send(frames[-1], _AT_ONCE, copy=len(frames[-1]) <= COPIED_BYTES)


def _bindable(host: str) -> str:
    """A place that ZeroMQ can listen on: an address or an interface, since it resolves no names."""
    if host == "*" or is_ipv6(host) or host in (name for _, name in socket.if_nameindex()):
        return host
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    by_family = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return str(by_family[0][4][0])


def take_every_descriptor_allowed() -> None:
    """Raise the limit of descriptors as far as the system lets this user."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # the limit may be more than the system supports
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
