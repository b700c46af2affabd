"""
The sockets of a server: its ROUTER, and the address by which others reach it, on every interface perhaps; and one
DEALER an address to other servers, of a standby to its primary and of a shard to shard 1.
"""

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from threading import Event, Thread
from typing import Any

import zmq

from ps_common.errors import WireError
from ps_common.program.output import LogOfPeer
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.names import EVERY_INTERFACE, bare_host, split_address
from ps_common.protocol.wire import MAX_FRAME_BYTES, Buffer, to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connect, dealer, look_up, read_message
from ps_server.state.effects import SendToServer

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
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _outgoing_address() -> str:
    """The source address of packets to other networks, or this machine's name where there is none."""
    for family, outside in OUTSIDE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))
            return str(probe.getsockname()[0])
    return socket.gethostname()


BURST = 16  # messages of one address before other peers have their turn
DEAD_MILLISECONDS = 5000  # without a TCP acknowledgement: the connection is dead
LOOKUP_SECONDS = 1.0  # between two attempts to find the address of a name that has none yet
QUICK_SECONDS = 0.1  # for the first attempt: a number, and a name that has an address, take less

log = logging.getLogger("ps-server")


class OtherServers:
    """
    Messages sent while a connection is down are lost. The serving thread owns this; it ends with the context.

    With keys it connects only to the servers that they name.
    """

    def __init__(self, context: zmq.Context[Any], poller: zmq.Poller, keys: ClientKeys | None) -> None:
        """`poller` is to be told of what arrives."""
        self._context = context
        self._poller = poller
        self._keys = keys
        self._connections: dict[str, zmq.Socket[bytes]] = {}  # by address
        self._lookups: set[str] = set()  # addresses whose lookup has begun
        self._over_ipv6: dict[str, bool] = {}  # by address that was found
        self._is_closed = Event()
        self._log = LogOfPeer(log)

    def send(self, send: SendToServer) -> None:
        """Send a message to HOST:PORT, or to both of HOST:PORT,HOST:PORT, unless the connection is down."""
        for address in send.to.split(","):
            if (connection := self._connection(address, send.flag)) is None:
                continue
            try:
                connection.send_multipart(to_frames(send.message), zmq.NOBLOCK)
            except zmq.Again:
                log.debug("%s could not be sent to %s", type(send.message).__name__, address)

    def received(self) -> Iterator[tuple[str, ToWorker, Sequence[Buffer]]]:
        """The address, message and buffers of each message that has arrived, up to BURST of each address."""
        for address, connection in list(self._connections.items()):
            for _ in range(BURST):
                try:
                    yield address, *read_message(connection)
                except zmq.Again:
                    break
                except WireError as error:
                    self._log.warning("the server at %s sent something unreadable: %s", address, error)

    def close(self) -> None:
        self._is_closed.set()
        for connection in self._connections.values():
            connection.close(linger=0)

    def _connection(self, address: str, flag: str) -> zmq.Socket[bytes] | None:
        """
        The connection to an address, made by the first message to it; None while its name has no address.

        Whether to connect by IPv4 or by IPv6 is not known before: a container may be named after others look for it.
        """
        if address in self._connections:
            return self._connections[address]
        if address not in self._lookups:
            self._lookups.add(address)
            lookup = Thread(target=self._look_up, args=(address, flag), daemon=True)
            lookup.start()
            lookup.join(QUICK_SECONDS)
        if address not in self._over_ipv6:
            return None
        self._connections[address] = self._new_connection(address)
        return self._connections[address]

    def _look_up(self, address: str, flag: str) -> None:
        """Wait until the name has an address: in a thread, since a name server may take ten seconds to say no."""
        over_ipv6, why = look_up(address)
        if over_ipv6 is None:
            log.warning("%s %s: %s; still trying", flag, address, why)
        while over_ipv6 is None and not self._is_closed.wait(LOOKUP_SECONDS):
            over_ipv6, _ = look_up(address)
        if over_ipv6 is not None:
            self._over_ipv6[address] = over_ipv6

    def _new_connection(self, address: str) -> zmq.Socket[bytes]:
        connection = dealer(self._context, self._keys)
        # The kernel must not take minutes to find that the host has vanished and come back.
        connection.setsockopt(zmq.TCP_MAXRT, DEAD_MILLISECONDS)
        connect(connection, address, over_ipv6=self._over_ipv6[address])
        self._poller.register(connection, zmq.POLLIN)
        return connection
