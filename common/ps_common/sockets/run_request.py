"""A request to a run, given the address of any of its shards: some requests are for shard 1, or for all of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.protocol.messages import (
    Adjust,
    CheckpointRequest,
    StatusReply,
    StatusRequest,
    StopRequest,
    ToServer,
    ToWorker,
)
from ps_common.protocol.wire import Buffer
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import ask

Answer = tuple[ToWorker, Sequence[Buffer]]


def ask_run(server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None = None) -> Answer:
    """
    As `ask`. In a run with shards shard 1 alone is adjusted, and ends the run; a checkpoint is one of every shard.

    The reply is that of shard 1 then. Raises ServerUnreachable, which names the shards that have saved nothing.
    """
    one = partial(ask, timeout_seconds=timeout_seconds, keys=keys)
    if not isinstance(message, Adjust | CheckpointRequest | StopRequest):
        return one(server, message)
    status = one(server, StatusRequest(request=1))[0]
    shard = status.status.shard if isinstance(status, StatusReply) else None
    if shard is None or not shard.addresses:
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
