"""
Which connections are cut off for the memory or the descriptors that they take. Pure: counters and time are arguments.

ZeroMQ buffers a message until its last frame has arrived. Once every complete message has been read, the bytes that a
connection received and did not deliver belong to an unfinished message. One unfinished message may be as long as a
message with a vector of the run; all together share the push budget. Frames may be tiny and cost many times their
bytes: if memory runs short all the same, unfinished messages of unknown peers are cut off, and old ones of workers.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ps_common.protocol.wire import MAX_HEADER_BYTES
from ps_server.state.effects import PeerId

SLACK_BYTES = 2**16  # framing, beside vector and header
QUIET_BYTES = 2**12  # an unfinished message this small is ignored
OVERHEAD_BYTES = 2**10  # most that is no message (handshake, heartbeats) between two checks with messages
OLD_SECONDS = 1.0  # without a complete message: then a worker is cut off too when memory is short

IsKnown = Callable[[PeerId | None], bool]


@dataclass(eq=False)
class Connection:
    """One connection and its counters of bytes, as on the wire."""

    descriptor: int
    identity: bytes  # the kernel's cookie; descriptors are reused
    since: float
    peer: PeerId | None = None  # None until it has delivered a message
    delivered_at: float = field(init=False)  # time of its last message, or of the connection
    delivered: int = 0
    unfinished: int = 0
    _overhead: int = 0
    _held: int = 0  # at the last check
    _looked_at: int = 0  # `delivered` at the last check

    def __post_init__(self) -> None:
        self.delivered_at = self.since

    def bytes_held(self, received: int) -> int:
        """Bytes received and not delivered: of complete messages that wait, and of an unfinished one."""
        return max(0, received - self.delivered - self._overhead)

    def look(self, received: int) -> None:
        """The bytes received so far. Every message that was complete at the last check has been read since."""
        held = self.bytes_held(received)
        if self.delivered == self._looked_at:
            self.unfinished = min(held, self._held)
        else:
            self.unfinished, self._looked_at = 0, self.delivered
            overhead = min(held, OVERHEAD_BYTES)
            self._overhead += overhead
            held -= overhead
        self._held = held


def holding_too_much(
    connections: Collection[Connection],
    *,
    vector_bytes: int,
    budget_bytes: int,
    is_short: bool,
    is_known: IsKnown,
    now: float,
) -> list[Connection]:
    """
    The connections to cut off now. `vector_bytes`: the longest vector that a peer may send; `is_short`: memory is.

    When all together hold too much, unknown peers go first, then the one that has delivered nothing for longest.
    """
    limit = vector_bytes + MAX_HEADER_BYTES + SLACK_BYTES
    suspects = [one for one in connections if one.unfinished > QUIET_BYTES]
    total = sum(one.unfinished for one in suspects)
    cut = []
    for one in sorted(suspects, key=lambda one: (one.unfinished <= limit, is_known(one.peer), one.delivered_at)):
        is_expendable = not is_known(one.peer) or now - one.delivered_at > OLD_SECONDS
        if one.unfinished > limit or total > max(budget_bytes, limit) or (is_short and is_expendable):
            cut.append(one)
            total -= one.unfinished
    return cut


def one_too_many(connections: Collection[Connection], *, count: int, is_known: IsKnown) -> list[Connection]:
    """`count` connections to cut off for their descriptors: unknown peers, oldest first; then workers, newest first."""
    unknown = [one for one in connections if not is_known(one.peer)]
    workers = [one for one in connections if is_known(one.peer)]
    unknown.sort(key=lambda one: one.since)
    workers.sort(key=lambda one: one.since, reverse=True)
    return [*unknown, *workers][:count]
