"""
Flow control: a budget of bytes for the vectors of pushes in flight, shared out as credits.

While the budget holds one vector of each living worker, the credit of each is an even share. When it does not, the
credit is 0: a worker requests credit before each push, and credit is granted in the order of the requests.

Names are free, and cost nothing to hoard credit under. So workers that have pushed and workers that never have are
granted credit in turn, and a grant to one of the latter soon goes to the next. One that lets grants expire unused waits
for the next one, twice as long each time, under whatever name on this connection, and on whatever connection under this
name.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ps_server.machine.membership import Member, Membership
from ps_server.state.effects import PeerId

RECEIVE_BYTES = 2**28  # the default budget: a second or two of work, so that no lease ends in the queue
GRANT_SECONDS = 30.0  # until an unused grant expires
FIRST_GRANT_SECONDS = 5.0  # until an unused grant of a worker that has never pushed expires
FIRST_PENALTY_SECONDS = 30.0  # after the second unused grant in a row: the first may be the network's fault
LONGEST_PENALTY_SECONDS = 3600.0
MOST_REMEMBERED = 10_000  # workers, or connections, with unused grants


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times and sizes that belong to a server and not to the run."""

    lease_seconds: float  # silence after which a worker is taken for dead
    checkpoint_seconds: float  # between two checkpoints
    receive_bytes: int = RECEIVE_BYTES  # for the vectors of pushes that are in flight or wait


@dataclass(frozen=True)
class _Grant:
    """Credit for one push that has not arrived yet."""

    whose: tuple[str, PeerId]
    size: int
    since: float
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
        # Request and bytes, in two queues: of workers that have pushed when they asked, and of others.
        self._waiting: dict[bool, OrderedDict[PeerId, tuple[int, int]]] = {True: OrderedDict(), False: OrderedDict()}
        self._granted: dict[PeerId, _Grant] = {}  # the oldest first
        self._turn = True  # which queue is served next
        self._granted_bytes = 0  # the sum over all grants
        self._ended_leases = 0  # when grants of dead workers were last looked for
        self._unused: OrderedDict[str | PeerId, _Unused] = OrderedDict()  # the latest last

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<PushBudget {self._budget_bytes} bytes granted={len(self._granted)} waiting={waiting}>"

    def credit(self, vector_bytes: int) -> int:
        """The bytes that each living worker may have in flight without a request, for vectors of this size."""
        share = self._budget_bytes // max(1, self._membership.count_alive())
        return share if share >= vector_bytes else 0

    def ask(self, peer: PeerId, request: int, size: int) -> None:
        """A peer requests credit for so many bytes. A retry keeps its place in the queue."""
        member = self._membership.known_at(peer)
        queue = self._waiting[member is not None and member.pushes > 0]
        if peer not in queue:
            self._leave_queues(peer)
        queue[peer] = (request, size)

    def arrived(self, member: Member) -> None:
        """A push of this worker has arrived: its grant is used."""
        self._take_back(member.peer)
        for one in _names_of(member):
            self._unused.pop(one, None)

    def next_grants(
        self, *, waiting_bytes: int = 0, has_waiting: Callable[[str], bool] = lambda _: False, now: float
    ) -> list[tuple[PeerId, int]]:
        """
        The peers that may push now, with their requests. Dead workers and penalised ones are skipped.

        `waiting_bytes` of pushes wait for the consistency gate. A worker with a push among them gets credit only within
        the budget; the pushes of the others may be what the gate waits for.
        """
        if not any(self._waiting.values()):
            return []
        self._end_grants(now=now)
        grants: list[tuple[PeerId, int]] = []
        while (found := self._first(waiting_bytes, has_waiting, now=now)) is not None:
            has_pushed, member, request, size = found
            granted = self._granted_beside(member.peer)
            if granted and granted + size > self._budget_bytes:
                break
            self._take_back(member.peer)
            until = now + (GRANT_SECONDS if has_pushed else FIRST_GRANT_SECONDS)
            self._granted[member.peer] = _Grant(_names_of(member), size, now, until)
            self._granted_bytes += size
            self._leave_queues(member.peer)
            self._turn = not has_pushed
            grants.append((member.peer, request))
        return grants

    def violations(self) -> Iterator[str]:
        """The violations of the grants."""
        sizes = [grant.size for grant in self._granted.values()]
        if sum(sizes) != self._granted_bytes:
            yield f"{self._granted_bytes} bytes count as granted, and {sum(sizes)} are"
        if sum(sizes) > max(self._budget_bytes, *sizes, 0):
            yield f"{sum(sizes)} bytes are granted, and the budget has {self._budget_bytes}"

    def _first(
        self, waiting_bytes: int, has_waiting: Callable[[str], bool], *, now: float
    ) -> tuple[bool, Member, int, int] | None:
        """The next that may be granted credit, its request and bytes, and in which queue it is."""
        gone: list[PeerId] = []
        found = None
        for has_pushed in (self._turn, not self._turn):
            # Most calls look at the first few of thousands: each push that arrives calls.
            for peer, (request, size) in self._waiting[has_pushed].items():
                member = self._membership.known_at(peer)
                if member is None or not member.alive:
                    gone.append(peer)
                    continue
                is_full = self._granted_beside(peer) + waiting_bytes + size > self._budget_bytes
                if not self._must_wait(member, now=now) and not (is_full and has_waiting(member.worker_id)):
                    found = has_pushed, member, request, size
                    break
            if found is not None:
                break
        for peer in gone:
            self._leave_queues(peer)
        return found

    def _granted_beside(self, peer: PeerId) -> int:
        """The bytes that are granted to all others."""
        return self._granted_bytes - (self._granted[peer].size if peer in self._granted else 0)

    def _leave_queues(self, peer: PeerId) -> None:
        for queue in self._waiting.values():
            queue.pop(peer, None)

    def _must_wait(self, member: Member, *, now: float) -> bool:
        unused = (self._unused.get(one) for one in _names_of(member))
        return any(one is not None and now < one.until for one in unused)

    def _end_grants(self, *, now: float) -> None:
        """Take back the grants of dead workers, and those that were not used in time: the first are the oldest."""
        over = []
        for peer, grant in self._granted.items():
            if now <= grant.since + FIRST_GRANT_SECONDS and self._membership.ended_leases == self._ended_leases:
                break
            member = self._membership.known_at(peer)
            if now > grant.until or member is None or not member.alive:
                over.append(peer)
        self._ended_leases = self._membership.ended_leases
        ended = [one for peer in over if (one := self._take_back(peer)) is not None]
        for who in [who for one in ended for who in one.whose]:
            unused = self._unused.pop(who, _Unused())
            unused.grants += 1
            if unused.grants > 1:
                penalty = FIRST_PENALTY_SECONDS * 2.0 ** min(unused.grants - 2, 30)
                unused.until = now + min(penalty, LONGEST_PENALTY_SECONDS)
            self._unused[who] = unused
            if len(self._unused) > MOST_REMEMBERED:
                self._unused.popitem(last=False)

    def _take_back(self, peer: PeerId) -> _Grant | None:
        """End the grant of this peer, if it has one."""
        grant = self._granted.pop(peer, None)
        if grant is not None:
            self._granted_bytes -= grant.size
        return grant


def _names_of(member: Member) -> tuple[str, PeerId]:
    """Its worker id and its connection: either of them is free to change alone."""
    return member.worker_id, member.peer
