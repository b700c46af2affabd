"""
The account of each connection: how often it may ask for what costs much more than the request.

One connection has one account, whatever names it brings; of new names all connections with one key have one together.
An open port is for a trusted network: whoever may open connections without end has accounts without end.
"""

from collections import OrderedDict
from collections.abc import Hashable

from ps_common.meters import RateLimit
from ps_server.state.effects import PeerId

# At once, and a second.
LIMITS: dict[str, tuple[int, float]] = {
    "name": (10_000, 1.0),  # a checkpoint holds an account of each name, of about a hundred bytes
    "status": (10, 2.0),  # a reply of many workers is ten thousand times its request
    "report": (40, 4.0),  # it may have 500 games, and a line is written for each game
    "frame": (2, 6.0),  # a worker sends 5 a second, of up to 50 kB
    "nonsense": (10, 1.0),  # bytes that are no message; replies to more of them are left out
}
MOST_ACCOUNTS = 10_000  # of the latest peers


class Allowances:
    """The accounts. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        # One table for each: connections without end must not have the names of a key forgotten.
        self._limits = {what: RateLimits(MOST_ACCOUNTS) for what in LIMITS}

    def allow(self, who: PeerId | str, what: str, *, now: float) -> bool:
        """Whether this connection, or key, may ask for that now; if so, it is counted."""
        at_once, per_second = LIMITS[what]
        return self._limits[what].allows(who, at_once=at_once, per_second=per_second, now=now)


class RateLimits:
    """A RateLimit for each of the latest peers, which come without end. A limit that is full again is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limits: OrderedDict[Hashable, RateLimit] = OrderedDict()  # the latest last

    def __len__(self) -> int:
        return len(self._limits)

    def allows(self, who: Hashable, *, at_once: int, per_second: float, now: float) -> bool:
        """As RateLimit, for this one."""
        limit = self._limits.pop(who, None) or RateLimit(at_once=at_once, per_second=per_second)
        self._limits[who] = limit
        allows = limit.allows(now=now)
        while len(self._limits) > self._most or next(iter(self._limits.values())).is_full(now=now):
            self._limits.popitem(last=False)
        return allows
