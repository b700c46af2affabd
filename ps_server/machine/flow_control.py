"""
Flow control: a budget of bytes for the vectors of pushes in flight, shared out as credits.

While the budget holds one vector of each living worker, the credit of each is an even share. When it does not, the
credit is 0: a worker requests credit before each push, and credit is granted in the order of the requests.

A name costs nothing, so credit could be hoarded under many. Workers that used their last grant, and others, therefore
have queues of their own, and neither fills the budget of the other: of both, one grant is always possible.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ps_server.machine.membership import Member, Membership
from ps_server.state.effects import PeerId

RECEIVE_BYTES = 2**28  # the default budget: a second or two of work, so that no lease ends in the queue
GRANT_SECONDS = 30.0  # until an unused grant expires
FIRST_GRANT_SECONDS = 5.0  # until an unused grant of a worker that has never pushed, or left its last one unused, does


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times and sizes that belong to a server and not to the run."""

    lease_seconds: float  # silence after which a worker is taken for dead
    checkpoint_seconds: float  # between two checkpoints
    receive_bytes: int = RECEIVE_BYTES  # for the vectors of pushes that are in flight or wait


@dataclass
class _Queue:
    """The requests of one kind of workers, and their grants: credit for one push that has not arrived yet."""

    grant_seconds: float
    waiting: OrderedDict[PeerId, tuple[int, int]] = field(default_factory=OrderedDict)  # request and bytes
    granted: dict[PeerId, tuple[int, float]] = field(default_factory=dict)  # bytes and the end; the oldest first

    @property
    def granted_bytes(self) -> int:
        """The sum over the grants."""
        return sum(size for size, _ in self.granted.values())


class PushBudget:
    """
    Grants belong to connections: a worker that reconnects requests credit again.

    Invariant: the unused grants of each queue are within the budget, or there is one.
    """

    def __init__(self, budget_bytes: int, membership: Membership) -> None:
        self._budget_bytes = budget_bytes
        self._membership = membership
        self._proven, self._others = self._queues = _Queue(GRANT_SECONDS), _Queue(FIRST_GRANT_SECONDS)
        self._ended_leases = 0  # when grants of dead workers were last looked for

    def __repr__(self) -> str:
        queues = " ".join(f"granted={len(one.granted)} waiting={len(one.waiting)}" for one in self._queues)
        return f"<PushBudget {self._budget_bytes} bytes {queues}>"

    def credit(self, vector_bytes: int) -> int:
        """The bytes that each living worker may have in flight without a request, for vectors of this size."""
        share = self._budget_bytes // max(1, self._membership.count_alive())
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """A peer requests credit for so many bytes. A retry keeps its place in the queue."""
        member = self._membership.known_at(peer)
        queue = self._proven if member is not None and member.uses_credit else self._others
        if peer not in queue.waiting:
            self._leave_queues(peer)
        queue.waiting[peer] = (request, size)

    def arrived(self, member: Member) -> None:
        """A push of this worker has arrived: its grant is used."""
        member.wastes_credit = False
        self._take_back(member.peer)

    def next_grants(
        self, *, waiting_bytes: int = 0, has_waiting: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        The peers that may push now, with their requests. Dead workers are skipped.

        `waiting_bytes` of pushes wait for the consistency gate. A worker with a push among them gets credit only within
        the budget; the pushes of the others may be what the gate waits for.
        """
        grants: list[tuple[PeerId, int]] = []
        if not any(queue.waiting for queue in self._queues):
            return grants
        self._end_grants(now=now)
        for queue in self._queues:
            while (found := self._first(queue, waiting_bytes, has_waiting)) is not None:
                peer, request, size = found
                if peer not in queue.granted:  # else the answer was lost
                    if queue.granted and queue.granted_bytes + size > self._most_bytes(queue):
                        break
                    queue.granted[peer] = size, now + queue.grant_seconds
                del queue.waiting[peer]
                grants.append((peer, request))
        return grants

    def violations(self) -> Iterator[str]:
        """The violations of the grants."""
        for queue in self._queues:
            if (granted := queue.granted_bytes) > self._budget_bytes and len(queue.granted) > 1:
                yield f"{granted} bytes are granted, and the budget has {self._budget_bytes}"

    def _most_bytes(self, queue: _Queue) -> int:
        """What the grants of this queue may be, if they are more than one."""
        if queue is self._proven:
            return self._budget_bytes - self._others.granted_bytes
        return min(self._budget_bytes // 2, self._budget_bytes - self._proven.granted_bytes)

    def _first(
        self, queue: _Queue, waiting_bytes: int, has_waiting: Callable[[str], bool]
    ) -> tuple[PeerId, int, int] | None:
        """The next of this queue that may be granted credit, its request and bytes."""
        gone: list[PeerId] = []
        found = None
        taken = waiting_bytes + sum(one.granted_bytes for one in self._queues)
        # Most calls look at the first few of thousands: each push that arrives calls.
        for peer, (request, size) in queue.waiting.items():
            member = self._membership.known_at(peer)
            if member is None or not member.alive:
                gone.append(peer)
            elif queue is self._proven and not member.uses_credit:  # since it asked
                gone.append(peer)
                self._others.waiting[peer] = request, size
            elif taken + size <= self._budget_bytes or not has_waiting(member.worker_id):
                found = peer, request, size
                break
        for peer in gone:
            del queue.waiting[peer]
        return found

    def _leave_queues(self, peer: PeerId) -> None:
        for queue in self._queues:
            queue.waiting.pop(peer, None)

    def _end_grants(self, *, now: float) -> None:
        """Take back the grants that were not used in time, and those of dead workers."""
        for queue in self._queues:
            while queue.granted and now > next(iter(queue.granted.values()))[1]:
                peer = next(iter(queue.granted))
                del queue.granted[peer]
                if (member := self._membership.known_at(peer)) is not None:
                    member.wastes_credit = True
        if self._ended_leases != self._membership.ended_leases:
            self._ended_leases = self._membership.ended_leases
            for queue in self._queues:
                for peer in list(queue.granted):
                    if (member := self._membership.known_at(peer)) is None or not member.alive:
                        del queue.granted[peer]

    def _take_back(self, peer: PeerId) -> None:
        """End the grant of this peer, if it has one."""
        for queue in self._queues:
            queue.granted.pop(peer, None)
