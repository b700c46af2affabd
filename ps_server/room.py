"""
Room for the vectors of pushes that are on their way here: a budget of bytes, shared out as credits.

While the budget holds a vector of each living worker, its even share is what each may have unanswered, and nobody asks.
When it does not, no worker has a credit: it asks before each push, and those who ask have their turns in that order.
"""

from collections import OrderedDict

from ps_server.membership import Membership, PeerId

TURN_SECONDS = 30.0  # a worker that was given room and sends nothing for so long keeps the others waiting no more


class Room:
    """
    By connection, so that a worker that comes back on another one asks anew.

    Invariant: what was given and not yet used is within the budget, or is that of a single push.
    """

    def __init__(self, budget_bytes: int, membership: Membership) -> None:
        self._budget_bytes = budget_bytes
        self._membership = membership
        self._waiting: OrderedDict[PeerId, tuple[int, int]] = OrderedDict()  # request, bytes
        self._given: dict[PeerId, tuple[int, float]] = {}  # bytes, when

    def __repr__(self) -> str:
        return f"<Room {self._budget_bytes} bytes given={len(self._given)} waiting={len(self._waiting)}>"

    def credit(self, vector_bytes: int) -> int:
        """Bytes that each of the living workers may have unanswered without asking, each vector being so large."""
        share = self._budget_bytes // max(1, len(self._membership.alive()))
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """Somebody wants to push so many bytes. Who asks again keeps the place in the queue."""
        self._waiting[peer] = (request, size)

    def waits(self, peer: PeerId) -> bool:
        """Whether it has asked, and was given nothing yet."""
        return peer in self._waiting

    def arrived(self, peer: PeerId) -> None:
        """A push of this peer is here."""
        self._given.pop(peer, None)

    def next_turns(self, *, now: float) -> list[tuple[PeerId, int]]:
        """Who may push now, with the request that asked. Those who are gone, or do not use theirs, are passed by."""
        turns: list[tuple[PeerId, int]] = []
        if not self._waiting:
            return turns
        living = {member.peer for member in self._membership.alive()}
        self._waiting = OrderedDict((peer, asked) for peer, asked in self._waiting.items() if peer in living)
        self._given = {
            peer: (size, when)
            for peer, (size, when) in self._given.items()
            if peer in living and now - when <= TURN_SECONDS
        }
        while self._waiting:
            peer, (request, size) = next(iter(self._waiting.items()))
            given = sum(given for other, (given, _) in self._given.items() if other != peer)
            if given and given + size > self._budget_bytes:
                break
            del self._waiting[peer]
            self._given[peer] = (size, now)
            turns.append((peer, request))
        return turns
