"""
The end of a sharded run: the shard that has ended it asks the others to end too.

It asks when its own workers have left. All pushes of these are then at the other shards as well.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from common.errors import RequestRefused, ServerUnreachable, WireError
from common.protocol.messages import StopRequest
from common.protocol.names import as_text
from common.protocol.shards import Shard
from common.sockets.curve import ClientKeys
from common.sockets.request import ask

REPLY_SECONDS = 2.0

log = logging.getLogger("ps-server")


@contextmanager
def ending_others(shard: Shard, reason: str, keys: ClientKeys | None) -> Iterator[None]:
    """Ask the other shards to end during this block; nobody is asked while `reason` is empty."""
    others = [address for number, address in enumerate(shard.addresses, 1) if reason and number != shard.number]
    if not others:
        yield
        return
    with ThreadPoolExecutor(len(others)) as pool:
        for address in others:
            pool.submit(_end, address, as_text(f"{shard} has ended: {reason}"), keys)
        yield


def _end(addresses: str, reason: str, keys: ClientKeys | None) -> None:
    """Ask the shard with these addresses, of a primary and perhaps a standby. One that has ended does not reply."""
    for address in addresses.split(","):
        try:
            ask(address, StopRequest(request=1, reason=reason), timeout_seconds=REPLY_SECONDS, keys=keys)
        except (ServerUnreachable, RequestRefused, WireError) as error:
            log.debug("%s: %s", address, error)
        else:
            return
