"""
Which connections are cut off, for the memory or the descriptors that they take. Pure: counters and the time are given.

ZeroMQ holds a message until its last frame is here. Bytes that a connection brought and that were not delivered belong
to an unfinished message once every message that waited has been taken. One unfinished message may be as long as a
message with a vector of the run; all of them together have the budget of pushes that are under way. Frames may be
tiny and cost many times their bytes: when memory is short all the same, strangers' unfinished messages go, and others
that are old.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from common.protocol.wire import MAX_HEADER_BYTES
from ps_server.machine.membership import PeerId

SLACK_BYTES = 2**16  # beside vector and header: what frames cost on the wire
QUIET_BYTES = 2**12  # of an unfinished message that nobody minds
OVERHEAD_BYTES = 2**10  # most that is no message (handshake, heartbeats), from one look with messages to the next
OLD_SECONDS = 1.0  # without a message: then the unfinished message of a worker goes too when memory is short

IsKnown = Callable[[PeerId | None], bool]


@dataclass(eq=False)
class Connection:
    """One connection and its counters of bytes, as on the wire."""

    descriptor: int
    identity: bytes  # of the kernel; descriptors are used again
    since: float
    peer: PeerId | None = None  # None until it has delivered a message
    heard: float = field(init=False)  # when it delivered its last message, or was made
    delivered: int = 0
    unfinished: int = 0
    _overhead: int = 0
    _held: int = 0  # at the last look
    _looked_at: int = 0  # `delivered` at the last look

    def __post_init__(self) -> None:
        self.heard = self.since

    def bytes_held(self, received: int) -> int:
        """Bytes brought and not delivered, of messages that wait and of one that is not finished."""
        return max(0, received - self.delivered - self._overhead)

    def look(self, received: int) -> None:
        """So many bytes were read of it by now. Since the last look every message that waited then has been taken."""
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
    The connections to be cut off now. `vector_bytes`: the longest vector that anybody may send; `is_short`: memory is.

    When all together hold too much, strangers go first, then whoever has delivered nothing for longest.
    """
    limit = vector_bytes + MAX_HEADER_BYTES + SLACK_BYTES
    suspects = [one for one in connections if one.unfinished > QUIET_BYTES]
    total = sum(one.unfinished for one in suspects)
    cut = []
    for one in sorted(suspects, key=lambda one: (one.unfinished <= limit, is_known(one.peer), one.heard)):
        is_expendable = not is_known(one.peer) or now - one.heard > OLD_SECONDS
        if one.unfinished > limit or total > max(budget_bytes, limit) or (is_short and is_expendable):
            cut.append(one)
            total -= one.unfinished
    return cut


def one_too_many(connections: Collection[Connection], *, count: int, is_known: IsKnown) -> list[Connection]:
    """So many to be cut off because descriptors run out: strangers, oldest first; then workers, newest first."""
    strangers = [one for one in connections if not is_known(one.peer)]
    workers = [one for one in connections if is_known(one.peer)]
    strangers.sort(key=lambda one: one.since)
    workers.sort(key=lambda one: one.since, reverse=True)
    return [*strangers, *workers][:count]
