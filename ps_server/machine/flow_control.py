"""
Flow control: a budget of bytes for the vectors of pushes in flight, shared out as credits.

While the budget holds one vector of each living worker, the credit of each is an even share. When it does not, the
credit is 0: a worker requests credit before each push, and credit is granted in the order of the requests.

A worker that lets grants expire unused waits for the next one, twice as long each time: the budget is for workers that
push.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ps_server.machine.membership import Member, Membership, PeerId

RECEIVE_BYTES = 2**30  # the default budget
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
        self._granted: dict[PeerId, _Grant] = {}
        self._unused: OrderedDict[str, _Unused] = OrderedDict()  # by worker id, the latest last

    def __repr__(self) -> str:
        return f"<PushBudget {self._budget_bytes} bytes granted={len(self._granted)} waiting={len(self._waiting)}>"

    def credit(self, vector_bytes: int) -> int:
        """The bytes that each living worker may have in flight without a request, for vectors of this size."""
        share = self._budget_bytes // max(1, len(self._membership.alive()))
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """A peer requests credit for so many bytes. A retry keeps its place in the queue."""
        self._waiting[peer] = (request, size)

    def waits(self, peer: PeerId) -> bool:
        """Whether a request of this peer is in the queue."""
        return peer in self._waiting

    def arrived(self, member: Member) -> None:
        """A push of this worker has arrived: its grant is used."""
        self._granted.pop(member.peer, None)
        self._unused.pop(member.worker_id, None)

    def next_grants(
        self, *, waiting_bytes: int = 0, has_waiting: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        The peers that may push now, with their requests. Dead workers and penalised ones are skipped.

        `waiting_bytes` of pushes wait for the consistency gate. A worker with a push among them gets credit only within
        the budget; the pushes of the others may be what the gate waits for.
        """
        grants: list[tuple[PeerId, int]] = []
        if not self._waiting:
            return grants
        living = {member.peer: member.worker_id for member in self._membership.alive()}
        self._waiting = OrderedDict((peer, asked) for peer, asked in self._waiting.items() if peer in living)
        self._end_grants(living.keys(), now=now)
        for peer, (request, size) in list(self._waiting.items()):
            worker = living[peer]
            granted = sum(grant.size for other, grant in self._granted.items() if other != peer)
            is_full = granted + waiting_bytes + size > self._budget_bytes
            if self._must_wait(worker, now=now) or (has_waiting(worker) and is_full):
                continue
            if granted and granted + size > self._budget_bytes:
                break
            del self._waiting[peer]
            self._granted[peer] = _Grant(worker, size, until=now + GRANT_SECONDS)
            grants.append((peer, request))
        return grants

    def _must_wait(self, worker_id: str, *, now: float) -> bool:
        unused = self._unused.get(worker_id)
        return unused is not None and now < unused.until

    def _end_grants(self, living: Collection[PeerId], *, now: float) -> None:
        """Take back the grants of dead workers, and those that were not used in time."""
        over = [peer for peer, grant in self._granted.items() if peer not in living or now > grant.until]
        for worker in [self._granted.pop(peer).worker_id for peer in over]:
            unused = self._unused.pop(worker, _Unused())
            unused.grants += 1
            if unused.grants > 1:
                penalty = FIRST_PENALTY_SECONDS * 2.0 ** min(unused.grants - 2, 30)
                unused.until = now + min(penalty, LONGEST_PENALTY_SECONDS)
            self._unused[worker] = unused
            if len(self._unused) > MOST_REMEMBERED:
                self._unused.popitem(last=False)
