"""One request to a server and its reply, for programs that are not workers: ps-ctl, rl-eval, rl-cluster."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial

import zmq

from ps_common.errors import PsRlError, RequestRefused, ServerUnreachable, WireError
from ps_common.protocol.messages import (
    Adjust,
    CheckpointRequest,
    Evaluation,
    Refused,
    StatusReply,
    StatusRequest,
    StopRequest,
    ToServer,
    ToWorker,
)
from ps_common.protocol.wire import Buffer, to_frames
from ps_common.release import explained
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connected, read_message

SERVED_ELSEWHERE = {"standby", "fenced"}  # refusals and phases of a server that does not serve the run (any more)

Answer = tuple[ToWorker, Sequence[Buffer]]


def ask(server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None = None) -> Answer:
    """
    Send one message to HOST:PORT and return the reply with the buffers of its vector.

    HOST:PORT,HOST:PORT, of a server and its standby, are asked at the same time; the reply is that of the one which
    serves the run, if either does. Raises ServerUnreachable without a reply in time, RequestRefused, or WireError when
    another program listens there.
    """
    last: Answer | PsRlError | None = None
    with zmq.Context() as context, ExitStack() as stack:
        asked = {}
        for address in dict.fromkeys(server.split(",")):
            try:
                socket = stack.enter_context(closing(connected(context, address, keys, waits=True)))
            except ServerUnreachable as error:
                last = error
                continue
            socket.send_multipart(to_frames(message))
            asked[socket] = address
        for reply in _replies(asked, message, until=time.monotonic() + timeout_seconds):
            if not _is_elsewhere(reply):
                return _result(reply)
            last = reply
    if last is not None:
        return _result(last)
    key = " that knows this key?" if keys else "? One that is locked takes --curve-server-key and --curve-secret"
    raise ServerUnreachable(f"{server} sent no reply within {timeout_seconds:g} s; is a ps-server listening there{key}")


def status_of(server: str, *, timeout_seconds: float, keys: ClientKeys | None = None) -> StatusReply:
    """The status of the run that is served there, with its settings and schema. Raises as `ask` does."""
    reply, _ = ask(server, StatusRequest(request=1), timeout_seconds=timeout_seconds, keys=keys)
    if not isinstance(reply, StatusReply):
        raise WireError(f"{server} replies to a request for its status with {type(reply).__name__}")
    return reply


def _replies(asked: dict[zmq.Socket[bytes], str], message: ToServer, *, until: float) -> Iterator[Answer | PsRlError]:
    """The reply of each server as it comes, or its error. Other messages may come first: STOP comes unasked."""
    waiting = list(asked)
    while waiting and (left := until - time.monotonic()) > 0:
        zmq.zmq_poll([(socket, zmq.POLLIN) for socket in waiting], int(1000 * left) + 1)
        for socket in list(waiting):
            reply: Answer | PsRlError
            try:
                reply = read_message(socket)
                if isinstance(reply[0], Refused):
                    code, reason = reply[0].code, reply[0].reason
                    reply = RequestRefused(code, explained(reason) if code == "bad_message" else reason)
                elif reply[0].request != message.request:
                    continue
            except zmq.Again:
                continue
            except WireError as error:
                what = "what listens there is not a ps-server of this protocol; is it the port of a page?"
                reply = WireError(f"{asked[socket]}: {what} ({error})")
            yield reply
            waiting.remove(socket)


def _is_elsewhere(reply: Answer | PsRlError) -> bool:
    """Whether another of the servers may have a better reply."""
    if isinstance(reply, PsRlError):
        return not isinstance(reply, RequestRefused) or reply.code in SERVED_ELSEWHERE
    return isinstance(reply[0], StatusReply) and reply[0].status.phase in SERVED_ELSEWHERE


def _result(reply: Answer | PsRlError) -> Answer:
    if isinstance(reply, PsRlError):
        raise reply
    return reply


def ask_run(server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None = None) -> Answer:
    """
    As `ask`. In a run with shards shard 1 alone is adjusted, counts evaluations, and ends the run; a checkpoint is one
    of every shard.

    The reply is that of shard 1 then. Raises ServerUnreachable, which names the shards that have saved nothing.
    """
    one = partial(ask, timeout_seconds=timeout_seconds, keys=keys)
    if not isinstance(message, Adjust | CheckpointRequest | StopRequest | Evaluation):
        return one(server, message)
    shard = status_of(server, timeout_seconds=timeout_seconds, keys=keys).status.shard
    if not shard.addresses:
        return one(server, message)
    # The user may reach a shard by another address than the others do.
    servers = [f"{server},{its}" if number == shard.number else its for number, its in enumerate(shard.addresses, 1)]
    if not isinstance(message, CheckpointRequest):
        return one(servers[0], message)
    with ThreadPoolExecutor(len(servers)) as pool:
        replies = [pool.submit(one, its, message) for its in servers]
    errors = {number: error for number, reply in enumerate(replies, 1) if (error := reply.exception())}
    if unexpected := [error for error in errors.values() if not isinstance(error, ServerUnreachable | RequestRefused)]:
        raise unexpected[0]
    if errors:
        failed = "; ".join(f"shard {number}: {error}" for number, error in errors.items())
        raise ServerUnreachable(f"not every shard has saved a checkpoint; give the command again: {failed}")
    return replies[0].result()
