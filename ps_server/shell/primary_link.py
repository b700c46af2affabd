"""A standby's connection with its primary: one DEALER. Whatever is said while it does not stand is lost."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import zmq

from common.errors import WireError
from common.protocol.messages import ToServer, ToWorker
from common.protocol.wire import Buffer, read_to_worker, to_frames
from common.sockets.curve import ClientKeys
from common.sockets.zmq_sockets import connect, dealer, receive_frames, why_no_address

BURST = 16  # messages between two looks at the clock and at other peers
DEAD_MILLISECONDS = 5000  # in which nothing that was sent has arrived

log = logging.getLogger("ps-server")


class PrimaryLink:
    """The thread that serves owns it; it ends with the context. With keys it talks to nobody but whom they name."""

    def __init__(self, context: zmq.Context[Any], address: str, keys: ClientKeys | None) -> None:
        self._address = address
        self.socket = dealer(context, keys)
        # A host that vanished and came back: the kernel must not wait for minutes to find out.
        self.socket.setsockopt(zmq.TCP_MAXRT, DEAD_MILLISECONDS)
        if why := why_no_address(address):
            log.warning("--standby-of %s: %s; trying on", address, why)
        connect(self.socket, address)

    def send(self, message: ToServer) -> None:
        """Send it, unless the connection does not stand."""
        try:
            self.socket.send_multipart(to_frames(message), zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s could not be sent", type(message).__name__)

    def waiting(self) -> Iterator[tuple[ToWorker, Sequence[Buffer]]]:
        """What has arrived, but not without end: messages, each with the buffers of its vector."""
        for _ in range(BURST):
            try:
                frames = receive_frames(self.socket)
            except zmq.Again:
                return
            try:
                yield read_to_worker([frame.buffer for frame in frames])
            except WireError as error:
                log.warning("the primary at %s sent something unreadable: %s", self._address, error)
