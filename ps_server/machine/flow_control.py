"""
Flow control: a budget of bytes for the vectors of pushes in flight, shared out as credits.

While the budget holds one vector of each living worker, the credit of each is an even share. When it does not, the
credit is 0: a worker requests credit before each push, and credit is granted in the order of the requests.

A worker that lets grants expire unused waits for the next one, twice as long each time: the budget is for workers that
push.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ps_server.machine.membership import Member, Membership
from ps_server.state.effects import PeerId

RECEIVE_BYTES = 2**28  # the default budget: a second or two of work, so that no lease ends in the queue
GRANT_SECONDS = 30.0  # until an unused grant expires
FIRST_PENALTY_SECONDS = 30.0  # after the second unused grant in a row: the first may be the network's fault
LONGEST_PENALTY_SECONDS = 3600.0
MOST_REMEMBERED = 10_000  # workers with unused grants


@dataclass(frozen=True)
class _Grant:
    """Credit for one push that has not arrived yet."""

    worker_id: str
    size: int
    until: float


@dataclass
class _Unused:
    """How many grants in a row a worker has let expire, and until when the next one has to wait."""

    grants: int = 0
    until: float = 0.0


class PushBudget:
    """
    Grants belong to connections: a worker that reconnects requests credit again.

    Invariant: all unused grants are within the budget, or there is one.
    """

    def __init__(self, budget_bytes: int, membership: Membership) -> None:
        self._budget_bytes = budget_bytes
        self._membership = membership
        self._waiting: OrderedDict[PeerId, tuple[int, int]] = OrderedDict()  # request, bytes
        self._granted: dict[PeerId, _Grant] = {}  # the oldest first
        self._granted_bytes = 0  # the sum over all grants
        self._ended_leases = 0  # when grants of dead workers were last looked for
        self._unused: OrderedDict[str, _Unused] = OrderedDict()  # by worker id, the latest last

    def __repr__(self) -> str:
        return f"<PushBudget {self._budget_bytes} bytes granted={len(self._granted)} waiting={len(self._waiting)}>"

    def credit(self, vector_bytes: int) -> int:
        """The bytes that each living worker may have in flight without a request, for vectors of this size."""
        share = self._budget_bytes // max(1, self._membership.count_alive())
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """A peer requests credit for so many bytes. A retry keeps its place in the queue."""
        self._waiting[peer] = (request, size)

    def waits(self, peer: PeerId) -> bool:
        """Whether a request of this peer is in the queue."""
        return peer in self._waiting

    def arrived(self, member: Member) -> None:
        """A push of this worker has arrived: its grant is used."""
        self._take_back(member.peer)
        self._unused.pop(member.worker_id, None)

    def next_grants(
        self, *, waiting_bytes: int = 0, has_waiting: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        The peers that may push now, with their requests. Dead workers and penalised ones are skipped.

        `waiting_bytes` of pushes wait for the consistency gate. A worker with a push among them gets credit only within
        the budget; the pushes of the others may be what the gate waits for.
        """
        if not self._waiting:
            return []
        self._end_grants(now=now)
        grants: list[tuple[PeerId, int]] = []
        gone: list[PeerId] = []
        # Most calls look at the first few of thousands: each push that arrives calls.
        for peer, (request, size) in self._waiting.items():
            member = self._membership.known_at(peer)
            if member is None or not member.alive:
                gone.append(peer)
                continue
            granted = self._granted_bytes - (self._granted[peer].size if peer in self._granted else 0)
            is_full = granted + waiting_bytes + size > self._budget_bytes
            if self._must_wait(member.worker_id, now=now) or (has_waiting(member.worker_id) and is_full):
                continue
            if granted and granted + size > self._budget_bytes:
                break
            self._take_back(peer)
            self._granted[peer] = _Grant(member.worker_id, size, until=now + GRANT_SECONDS)
            self._granted_bytes += size
            grants.append((peer, request))
        for peer in [*gone, *(peer for peer, _ in grants)]:
            del self._waiting[peer]
        return grants

    def _must_wait(self, worker_id: str, *, now: float) -> bool:
        unused = self._unused.get(worker_id)
        return unused is not None and now < unused.until

    def _end_grants(self, *, now: float) -> None:
        """Take back the grants of dead workers, and those that were not used in time: the first are the oldest."""
        over = []
        for peer, grant in self._granted.items():
            if now <= grant.until and self._membership.ended_leases == self._ended_leases:
                break
            member = self._membership.known_at(peer)
            if now > grant.until or member is None or not member.alive:
                over.append(peer)
        self._ended_leases = self._membership.ended_leases
        for worker in [self._take_back(peer) for peer in over]:
            unused = self._unused.pop(worker, _Unused())
            unused.grants += 1
            if unused.grants > 1:
                penalty = FIRST_PENALTY_SECONDS * 2.0 ** min(unused.grants - 2, 30)
                unused.until = now + min(penalty, LONGEST_PENALTY_SECONDS)
            self._unused[worker] = unused
            if len(self._unused) > MOST_REMEMBERED:
                self._unused.popitem(last=False)

    def _take_back(self, peer: PeerId) -> str:
        """End the grant of this peer, if it has one; returns its worker."""
        grant = self._granted.pop(peer, None)
        self._granted_bytes -= grant.size if grant else 0
        return grant.worker_id if grant else ""
