"""One request to all shards of a run, given the address of any: what concerns the run has to reach each of them."""

from collections.abc import Sequence

from common.errors import RequestRefused, ServerUnreachable
from common.protocol.messages import Adjust, CheckpointRequest, StatusReply, StatusRequest, ToServer, ToWorker
from common.protocol.wire import Buffer
from common.sockets.curve import ClientKeys
from common.sockets.request import ask


def ask_shards(
    server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None = None
) -> tuple[ToWorker, Sequence[Buffer]]:
    """
    As `ask`, and the reply is that of HOST:PORT. An adjustment, or a request for a checkpoint, that this shard has
    accepted goes to all others too.

    Raises ServerUnreachable that names the shards that could not be reached; the message may be sent again.
    """
    reply = ask(server, message, timeout_seconds=timeout_seconds, keys=keys)
    if not isinstance(message, Adjust | CheckpointRequest):
        return reply
    status = ask(server, StatusRequest(request=1), timeout_seconds=timeout_seconds, keys=keys)[0]
    shard = status.status.shard if isinstance(status, StatusReply) else None
    failed = []
    for number, addresses in enumerate(shard.addresses if shard else (), 1):
        if shard and number != shard.number and (why := _failure(addresses, message, timeout_seconds, keys)):
            failed.append(f"shard {number}: {why}")
    if failed:
        raise ServerUnreachable(f"not every shard has accepted that; give the command again: {'; '.join(failed)}")
    return reply


def _failure(addresses: str, message: ToServer, timeout_seconds: float, keys: ClientKeys | None) -> str:
    """Why neither the server nor its standby has accepted the message; "" when one has."""
    why = ""
    for address in addresses.split(","):
        try:
            ask(address, message, timeout_seconds=timeout_seconds, keys=keys)
        except (ServerUnreachable, RequestRefused) as error:
            why = why or str(error)
        else:
            return ""
    return why
