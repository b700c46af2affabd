"""
Flow control: a budget of bytes for the vectors of pushes in flight, shared out as credits.

While the budget holds one vector of each living worker, the credit of each is an even share. When it does not, the
credit is 0: a worker requests credit before each push, and credit is granted in the order of the requests.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ps_server.machine.membership import Membership
from ps_server.state.effects import PeerId

RECEIVE_BYTES = 2**28  # the default budget: a second or two of work, so that no lease ends in the queue
GRANT_SECONDS = 30.0  # until an unused grant expires


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times and sizes that belong to a server and not to the run."""

    lease_seconds: float  # silence after which a worker is taken for dead
    checkpoint_seconds: float  # between two checkpoints
    receive_bytes: int = RECEIVE_BYTES  # for the vectors of pushes that are in flight or wait


class PushBudget:
    """
    Grants belong to connections: a worker that reconnects requests credit again.

    Invariant: the unused grants are within the budget, or there is one.
    """

    def __init__(self, budget_bytes: int, membership: Membership) -> None:
        self._budget_bytes = budget_bytes
        self._membership = membership
        self._waiting: dict[PeerId, tuple[int, int]] = {}  # request and bytes, in order
        self._granted: dict[PeerId, tuple[int, float]] = {}  # bytes, and when the grant ends; the oldest first
        self._ended_leases = 0  # when grants of dead workers were last looked for

    def credit(self, vector_bytes: int) -> int:
        """The bytes that each living worker may have in flight without a request, for vectors of this size."""
        share = self._budget_bytes // max(1, self._membership.count_alive())
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """A peer requests credit for a push of this size in bytes. A retry keeps its place in the queue."""
        self._waiting[peer] = (request, size)

    def has_grant(self, peer: PeerId, *, now: float) -> bool:
        """Whether this connection has a grant that is not used yet."""
        self._end_grants(now=now)
        return peer in self._granted

    def arrived(self, peer: PeerId) -> None:
        """A push has arrived on this connection: its grant is used."""
        self._granted.pop(peer, None)

    def next_grants(
        self, *, waiting_bytes: int = 0, has_waiting: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        The peers that may push now, with their requests. Dead workers are skipped.

        `waiting_bytes` of pushes wait for the consistency gate. A worker with a push among them gets credit only within
        the budget; the pushes of the others may be what the gate waits for.
        """
        grants: list[tuple[PeerId, int]] = []
        if not self._waiting:
            return grants
        self._end_grants(now=now)
        while (found := self._first(waiting_bytes, has_waiting)) is not None:
            peer, request, size = found
            if self._granted and self._granted_bytes + size > self._budget_bytes:
                break
            self._granted[peer] = size, now + GRANT_SECONDS
            del self._waiting[peer]
            grants.append((peer, request))
        return grants

    @property
    def _granted_bytes(self) -> int:
        return sum(size for size, _ in self._granted.values())

    def _first(self, waiting_bytes: int, has_waiting: Callable[[str], bool]) -> tuple[PeerId, int, int] | None:
        """The first peer in the queue that may be granted credit, its request and bytes."""
        gone: list[PeerId] = []
        found = None
        taken = waiting_bytes + self._granted_bytes
        # Most calls look at the first few of thousands: each push that arrives calls.
        for peer, (request, size) in self._waiting.items():
            member = self._membership.known_at(peer)
            if member is None or not member.alive:
                gone.append(peer)
            elif taken + size <= self._budget_bytes or not has_waiting(member.worker_id):
                found = peer, request, size
                break
        for peer in gone:
            del self._waiting[peer]
        return found

    def _end_grants(self, *, now: float) -> None:
        """Take back the grants that were not used in time, and those of dead workers."""
        while self._granted and now > next(iter(self._granted.values()))[1]:
            del self._granted[next(iter(self._granted))]
        if self._ended_leases != self._membership.ended_leases:
            self._ended_leases = self._membership.ended_leases
            for peer in list(self._granted):
                if (member := self._membership.known_at(peer)) is None or not member.alive:
                    del self._granted[peer]
