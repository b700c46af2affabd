"""How a server listens: its ROUTER socket, and the address by which others reach it, on every interface perhaps."""

import socket

import zmq

from ps_common.protocol.addresses import EVERY_INTERFACE, bare_host, split_address
from ps_common.protocol.wire import MAX_FRAME_BYTES

RECEIVE_HIGH_WATER = 16  # whole messages of one peer, received and not yet handled
SEND_HIGH_WATER = 8  # whole messages for one peer, not yet taken by its connection
# Networks reserved for documentation: nothing is sent, but the kernel chooses the address it would send from.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def router_socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A ROUTER whose options are set on purpose, before bind."""
    router = context.socket(zmq.ROUTER)
    # Else ZeroMQ silently drops replies to a connection that is gone or full.
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # In whole messages of one peer; the defaults of 1000 would be gigabytes of weights.
    router.setsockopt(zmq.RCVHWM, RECEIVE_HIGH_WATER)
    router.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER)
    # A larger frame disconnects its sender before memory is allocated.
    router.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    # Many workers may start at the same moment.
    router.setsockopt(zmq.BACKLOG, 1024)
    # Frees the connection of a host that vanished without FIN after two minutes. (ZeroMQ's own heartbeats would cut a
    # large frame on a slow link.)
    router.setsockopt(zmq.TCP_KEEPALIVE, 1)
    router.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 60)
    router.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    router.setsockopt(zmq.TCP_KEEPALIVE_CNT, 6)
    return router


def own_host(typed: str, bound: str) -> str:
    """`typed` is the value of --host, `bound` the address that the socket is bound to."""
    host = bare_host(typed)
    if bound in EVERY_INTERFACE:
        return _outgoing_address()
    return bound if host in (name for _, name in socket.if_nameindex()) else host


def is_own(address: str, host: str, port: int) -> bool:
    """Whether a server with these values of --host and --port listens at HOST:PORT `address`."""
    name, its_port = split_address(address)
    if its_port != port:
        return False
    listens = _addresses_of(bare_host(host))
    return any(host in EVERY_INTERFACE or one in listens for one in _addresses_of(bare_host(name)) if _is_local(one))


def _addresses_of(name: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return set()


def _is_local(address: str) -> bool:
    """Whether an interface of this machine has the address."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _outgoing_address() -> str:
    """The source address of packets to other networks, or this machine's name where there is none."""
    for family, outside in OUTSIDE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return socket.gethostname()
