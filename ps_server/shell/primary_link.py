"""A standby's connection to its primary: one DEALER. Messages sent while the connection is down are lost."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import zmq

from common.errors import WireError
from common.protocol.messages import ToServer, ToWorker
from common.protocol.wire import Buffer, read_to_worker, to_frames
from common.sockets.curve import ClientKeys
from common.sockets.zmq_sockets import connect, dealer, receive_frames, why_no_address

BURST = 16  # messages before other peers have their turn
DEAD_MILLISECONDS = 5000  # without a TCP acknowledgement: the connection is dead

log = logging.getLogger("ps-server")


class PrimaryLink:
    """The serving thread owns it; it ends with the context. With keys it connects only to the server they name."""

    def __init__(self, context: zmq.Context[Any], address: str, keys: ClientKeys | None) -> None:
        self._address = address
        self.socket = dealer(context, keys)
        # The kernel must not take minutes to find that the host has vanished and come back.
        self.socket.setsockopt(zmq.TCP_MAXRT, DEAD_MILLISECONDS)
        if why := why_no_address(address):
            log.warning("--standby-of %s: %s; still trying", address, why)
        connect(self.socket, address)

    def send(self, message: ToServer) -> None:
        """Send a message, unless the connection is down."""
        try:
            self.socket.send_multipart(to_frames(message), zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s could not be sent", type(message).__name__)

    def received(self) -> Iterator[tuple[ToWorker, Sequence[Buffer]]]:
        """Messages that have arrived, up to BURST, each with the buffers of its vector."""
        for _ in range(BURST):
            try:
                frames = receive_frames(self.socket)
            except zmq.Again:
                return
            try:
                yield read_to_worker([frame.buffer for frame in frames])
            except WireError as error:
                log.warning("the primary at %s sent something unreadable: %s", self._address, error)
