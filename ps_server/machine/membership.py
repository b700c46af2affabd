"""
Who takes part. A member has a lease that any traffic renews; there are no ranks, no fixed number, no start barrier.

A worker whose lease has ended is remembered: when it is heard again (it was paused, or its network was) it is simply
alive again.

What the shell knows of the peer that has sent a message, beside its connection.

How long a server waits, and how much it takes: what no run decides, whoever serves it.
"""

from collections import Counter
from dataclasses import dataclass, field

from common.meters import RollingMean
from common.protocol.messages import Hello, Settlement
from common.rate_limit import RateLimit

PeerId = bytes  # the routing id of a connection

MAX_MEMBERS = 10_000  # remembered, those that left or died included
REPORTS_AT_ONCE, REPORTS_PER_SECOND = 40, 4.0  # each may have 500 games, and a line is written for each game


@dataclass
class Member:
    """One worker process, known by its id and incarnation, reached through `peer`."""

    worker_id: str
    incarnation: int
    number: int
    host: str
    environments: int
    peer: PeerId
    last_heard: float  # seconds of the shell's monotonic clock
    alive: bool = True
    stalled: bool = False  # its trainer stands still, as it says itself
    pushes: int = 0  # applied
    discarded: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by code; discarded pushes too
    steps: int = 0
    staleness: RollingMean = field(default_factory=lambda: RollingMean(100))
    meters: dict[str, float] = field(default_factory=dict)  # newest reported
    reports: RateLimit = field(
        default_factory=lambda: RateLimit(at_once=REPORTS_AT_ONCE, per_second=REPORTS_PER_SECOND)
    )

    def push_settled(self, settlement: Settlement, *, steps: int) -> None:
        """One of its pushes was applied or discarded, or had been before."""
        if settlement.verdict == "applied":
            self.pushes += 1
            self.steps += steps
            self.staleness.add(settlement.staleness)
        elif settlement.verdict == "discarded":
            self.discarded += 1


class Membership:
    """The members of the run, by worker id and by the connection they were last heard on."""

    def __init__(self, lease_seconds: float, *, now: float) -> None:
        self.lease_seconds = lease_seconds
        self._presumed_until = now + lease_seconds  # until then workers of a former life of the server may come back
        self._by_id: dict[str, Member] = {}
        self._by_peer: dict[PeerId, Member] = {}
        self._living: dict[str, Member] = {}  # those that are alive, by id: thousands of the dead are remembered

    def join(self, hello: Hello, peer: PeerId, *, number: int, now: float) -> bool:
        """A worker was admitted as HELLO says here. Returns whether it is a known one, perhaps on a new connection."""
        member = self._by_id.get(hello.worker_id)
        known = member is not None and member.incarnation == hello.incarnation
        if member is not None:
            self._forget(member)
        if (other := self._by_peer.get(peer)) is not None:
            self._forget(other)
        if member is None or not known:
            member = Member(hello.worker_id, hello.incarnation, number, hello.host, hello.environments, peer, now)
        member.peer, member.last_heard, member.alive = peer, now, True
        self._by_id[member.worker_id] = self._by_peer[peer] = self._living[member.worker_id] = member
        if len(self._by_id) > MAX_MEMBERS:
            self._forget(min(self._by_id.values(), key=lambda one: (one.alive, one.last_heard)))
        return known

    def may_live(self, worker_id: str, *, now: float) -> bool:
        """Whether a lease of this worker runs; at first, of one that only a former life of the server knew, too."""
        member = self._by_id.get(worker_id)
        return now < self._presumed_until if member is None else member.alive

    def known_at(self, peer: PeerId) -> Member | None:
        """Whoever speaks on this connection, without renewing anything."""
        return self._by_peer.get(peer)

    def heard_from(self, peer: PeerId, *, now: float) -> Member | None:
        """Renew the lease of whoever speaks on this connection; None when that is nobody we know."""
        member = self._by_peer.get(peer)
        if member is not None:
            member.last_heard = now
            member.alive = True
            self._living[member.worker_id] = member
        return member

    def leave(self, member: Member) -> None:
        """A worker said GOODBYE."""
        self._end_lease(member)

    def expire(self, *, now: float) -> list[Member]:
        """End the leases of members silent for longer than the lease; return them."""
        ended = [member for member in self.alive() if now - member.last_heard > self.lease_seconds]
        for member in ended:
            self._end_lease(member)
        return ended

    def prolong(self, seconds: float, *, now: float) -> None:
        """Nobody was listened to for so long, until now: that was no silence of theirs."""
        self._presumed_until += seconds
        for member in self.alive():
            member.last_heard = min(now, member.last_heard + seconds)

    def alive(self) -> list[Member]:
        """The members whose lease runs."""
        return list(self._living.values())

    def moving(self) -> list[Member]:
        """Those of the living that others may have to wait for: whose trainer does not stand still."""
        return [member for member in self._living.values() if not member.stalled]

    def is_alive(self, worker_id: str) -> bool:
        """Whether this worker's lease runs."""
        return worker_id in self._living

    def all(self) -> list[Member]:
        """Every member that is remembered: the living first, then in order of joining."""
        return sorted(self._by_id.values(), key=lambda member: (not member.alive, member.number))

    def _end_lease(self, member: Member) -> None:
        member.alive = False
        self._living.pop(member.worker_id, None)

    def _forget(self, member: Member) -> None:
        self._living.pop(member.worker_id, None)
        self._by_id.pop(member.worker_id, None)
        self._by_peer.pop(member.peer, None)
