"""
The connections of a server to others, of a standby to its primary and of a shard to shard 1: one DEALER an address.

Messages sent while a connection is down are lost.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import zmq

from ps_common.errors import WireError
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.wire import Buffer, read_to_worker, to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connect, dealer, receive_frames, why_no_address
from ps_server.state.effects import SendToServer

BURST = 16  # messages of one address before other peers have their turn
DEAD_MILLISECONDS = 5000  # without a TCP acknowledgement: the connection is dead

log = logging.getLogger("ps-server")


class OtherServers:
    """The serving thread owns it; it ends with the context. With keys it connects only to the servers they name."""

    def __init__(self, context: zmq.Context[Any], poller: zmq.Poller, keys: ClientKeys | None) -> None:
        """`poller` is to be told of what arrives."""
        self._context = context
        self._poller = poller
        self._keys = keys
        self._sockets: dict[str, zmq.Socket[bytes]] = {}  # by address

    def send(self, send: SendToServer) -> None:
        """Send a message to HOST:PORT, or to both of HOST:PORT,HOST:PORT, unless the connection is down."""
        for address in send.to.split(","):
            if address not in self._sockets:
                self._sockets[address] = self._connected(address, send.flag)
            try:
                self._sockets[address].send_multipart(to_frames(send.message), zmq.NOBLOCK)
            except zmq.Again:
                log.debug("%s could not be sent to %s", type(send.message).__name__, address)

    def received(self) -> Iterator[tuple[str, ToWorker, Sequence[Buffer]]]:
        """The address, message and buffers of each message that has arrived, up to BURST of each address."""
        for address, socket in self._sockets.items():
            for _ in range(BURST):
                try:
                    frames = receive_frames(socket)
                except zmq.Again:
                    break
                try:
                    yield address, *read_to_worker([frame.buffer for frame in frames])
                except WireError as error:
                    log.warning("the server at %s sent something unreadable: %s", address, error)

    def _connected(self, address: str, flag: str) -> zmq.Socket[bytes]:
        socket = dealer(self._context, self._keys)
        # The kernel must not take minutes to find that the host has vanished and come back.
        socket.setsockopt(zmq.TCP_MAXRT, DEAD_MILLISECONDS)
        if why := why_no_address(address):
            log.warning("%s %s: %s; still trying", flag, address, why)
        connect(socket, address)
        self._poller.register(socket, zmq.POLLIN)
        return socket
