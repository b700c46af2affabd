"""One request to a server and its reply, for programs that are no workers: ps-ctl, rl-eval, rl-cluster."""

import time
from collections.abc import Sequence

import zmq

from common.errors import RequestRefused, ServerUnreachable, SettingsError
from common.protocol.addresses import check_address
from common.protocol.messages import Refused, ToServer, ToWorker
from common.protocol.wire import Buffer, read_to_worker, to_frames
from common.sockets.curve import ClientKeys
from common.sockets.zmq_sockets import connect, receive_frames, why_no_address


def ask(
    server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None = None
) -> tuple[ToWorker, Sequence[Buffer]]:
    """
    Send one message to HOST:PORT and return the reply with the buffers of its vector.

    Raises ServerUnreachable without a reply in time, RequestRefused, or WireError when another program listens there.
    """
    try:
        check_address("the address", server)
    except SettingsError as error:
        raise ServerUnreachable(str(error)) from error
    if why := why_no_address(server):
        raise ServerUnreachable(f"{server}: {why}")
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            keys.lock(socket)
        connect(socket, server)
        socket.send_multipart(to_frames(message))
        deadline = time.monotonic() + timeout_seconds
        # Other messages may come first (STOP comes unasked); the deadline stays.
        while (left := deadline - time.monotonic()) > 0 and socket.poll(int(1000 * left) + 1):
            reply, vector = read_to_worker([frame.buffer for frame in receive_frames(socket)])
            if isinstance(reply, Refused):
                raise RequestRefused(reply.code, reply.reason)
            if reply.request == message.request:
                return reply, vector
    terms = "know this key" if keys else "do without keys"
    raise ServerUnreachable(
        f"{server} sent no reply within {timeout_seconds:g} s; is a ps-server listening there, and does it {terms}?"
    )
