"""
Flow control: room for the vectors of pushes that are on their way here. A budget of bytes is shared out as credits.

While the budget holds a vector of each living worker, its even share is what each may have unanswered, and nobody asks.
When it does not, no worker has a credit: it asks before each push, and those who ask have their turns in that order.

A worker that was given room and did not use it has its next turn later, each time twice as much later: room is for
those who push.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ps_server.machine.membership import Member, Membership, PeerId

RECEIVE_BYTES = 2**30  # the default budget
GRANT_SECONDS = 30.0  # a worker that was given room and sends nothing for so long keeps the others waiting no more
FIRST_PENALTY_SECONDS = 30.0  # after the second unused turn in a row: of the first the network may be the cause
LONGEST_PENALTY_SECONDS = 3600.0
MOST_REMEMBERED = 10_000  # workers with unused turns


@dataclass(frozen=True)
class _Turn:
    """Room that was given."""

    worker_id: str
    size: int
    until: float


@dataclass
class _Unused:
    """How many turns in a row a worker has let pass, and until when the next one has to wait."""

    turns: int = 0
    until: float = 0.0


class PushBudget:
    """
    By connection, so that a worker that comes back on another one asks anew.

    Invariant: what was given and not yet used is within the budget, or is that of a single push.
    """

    def __init__(self, budget_bytes: int, membership: Membership) -> None:
        self._budget_bytes = budget_bytes
        self._membership = membership
        self._waiting: OrderedDict[PeerId, tuple[int, int]] = OrderedDict()  # request, bytes
        self._given: dict[PeerId, _Turn] = {}
        self._unused: OrderedDict[str, _Unused] = OrderedDict()  # by worker id, the latest last

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

    def arrived(self, member: Member) -> None:
        """A push of this worker is here."""
        self._given.pop(member.peer, None)
        self._unused.pop(member.worker_id, None)

    def next_grants(
        self, *, held_bytes: int = 0, holds: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        Who may push now, with the request that asked. Those who are gone, or do not use theirs, are passed by.

        `held_bytes` of pushes wait at the server for the consistency gate. A worker of which one waits (`holds`, by its
        id) is given room for the next as far as the budget goes; the others may be what the gate waits for.
        """
        turns: list[tuple[PeerId, int]] = []
        if not self._waiting:
            return turns
        living = {member.peer: member.worker_id for member in self._membership.alive()}
        self._waiting = OrderedDict((peer, asked) for peer, asked in self._waiting.items() if peer in living)
        self._end_grants(living.keys(), now=now)
        for peer, (request, size) in list(self._waiting.items()):
            worker = living[peer]
            given = sum(turn.size for other, turn in self._given.items() if other != peer)
            if self._must_wait(worker, now=now) or (holds(worker) and given + held_bytes + size > self._budget_bytes):
                continue
            if given and given + size > self._budget_bytes:
                break
            del self._waiting[peer]
            self._given[peer] = _Turn(worker, size, until=now + GRANT_SECONDS)
            turns.append((peer, request))
        return turns

    def _must_wait(self, worker_id: str, *, now: float) -> bool:
        unused = self._unused.get(worker_id)
        return unused is not None and now < unused.until

    def _end_grants(self, living: Collection[PeerId], *, now: float) -> None:
        """Take back the room of those who are gone, and of those who have not used it in time."""
        over = [peer for peer, turn in self._given.items() if peer not in living or now > turn.until]
        for worker in [self._given.pop(peer).worker_id for peer in over]:
            unused = self._unused.pop(worker, _Unused())
            unused.turns += 1
            if unused.turns > 1:
                penalty = FIRST_PENALTY_SECONDS * 2.0 ** min(unused.turns - 2, 30)
                unused.until = now + min(penalty, LONGEST_PENALTY_SECONDS)
            self._unused[worker] = unused
            if len(self._unused) > MOST_REMEMBERED:
                self._unused.popitem(last=False)
