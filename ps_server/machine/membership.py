"""
The members of a run and their leases. There are no ranks, no fixed number of workers, and no start barrier.

Every message of a member renews its lease. A member whose lease has ended is dead, but remembered: its next message
brings it to life again.
"""

from collections import Counter
from dataclasses import dataclass, field

from ps_common.meters import RollingMean
from ps_common.protocol.messages import Hello, Settlement
from ps_server.machine.allowances import Allowances
from ps_server.state.effects import PeerId

SILENT_SECONDS = 24 * 3600.0  # far beyond the patience with which workers wait for a server (--patience-minutes 30)
ALONE_SECONDS = 30.0  # without a worker, until a line of the log
ALONE = "no worker is alive: the run waits for one, and its minutes stand still"

MAX_MEMBERS = 10_000  # remembered, those that left or died included


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
    release: str = ""  # of its program; "" where it does not say
    alive: bool = True
    left: bool = False  # the worker has said GOODBYE
    stalled: bool = False  # its heartbeat reports that its trainer makes no step
    waits_elsewhere: bool = False  # its heartbeat reports that it pushes nothing before another shard replies
    pushes: int = 0  # applied
    discarded: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by code; discarded pushes too
    refusal: str = ""  # the reason of the newest
    steps: int = 0
    staleness: RollingMean = field(default_factory=lambda: RollingMean(100))
    meters: dict[str, float] = field(default_factory=dict)  # newest reported
    watchers: dict[PeerId, float] = field(default_factory=dict)  # who watches its game, and the end of each lease

    @property
    def may_push(self) -> bool:
        """Whether it may push soon, as long as it lives."""
        return not (self.stalled or self.waits_elsewhere)

    def watched_by(self, *, now: float) -> list[PeerId]:
        """The peers that watch its game."""
        return [peer for peer, until in self.watchers.items() if now <= until] if self.watchers else []

    def push_settled(self, settlement: Settlement, *, steps: int) -> None:
        """Count a push that was applied or discarded; a duplicate was counted before."""
        if settlement.verdict == "applied":
            self.pushes += 1
            self.steps += steps
            self.staleness.add(settlement.staleness)
        elif settlement.verdict == "discarded":
            self.discarded += 1


class Membership:
    """The members of the run, by worker id and by their newest connection."""

    def __init__(self, lease_seconds: float, *, now: float) -> None:
        self.lease_seconds = lease_seconds
        self.allowances = Allowances()
        self._presumed_until = (
            now + lease_seconds
        )  # until then a worker of the server's former epoch may come back under any name
        self._others_heard = now  # nobody that is not remembered was heard later
        self.ended_leases = 0  # so far, with those of connections that a worker has replaced
        self._by_id: dict[str, Member] = {}
        self._by_peer: dict[PeerId, Member] = {}
        self._alone_since: float | None = now  # None while a worker lives, or when this was said
        self._living: dict[str, Member] = {}  # the members that are alive; there may be thousands of dead ones

    def join(self, hello: Hello, peer: PeerId, *, number: int, now: float) -> bool:
        """A worker is admitted. Returns whether this process was a member before, perhaps on another connection."""
        member = self._by_id.get(hello.worker_id)
        known = member is not None and member.incarnation == hello.incarnation
        if member is not None:
            self._forget(member)
        if (other := self._by_peer.get(peer)) is not None:
            self._forget(other)
        if member is None or not known:
            member = Member(hello.worker_id, hello.incarnation, number, hello.host, hello.environments, peer, now)
        member.peer, member.last_heard, member.alive, member.left = peer, now, True, False
        member.release = hello.release
        member.environments = hello.environments  # a worker learns from its first WELCOME how many there are to be
        self._by_id[member.worker_id] = self._by_peer[peer] = self._living[member.worker_id] = member
        if len(self._by_id) > MAX_MEMBERS:
            longest_silent = min(self._by_id.values(), key=lambda one: (one.alive, one.last_heard))
            self._others_heard = max(self._others_heard, longest_silent.last_heard)
            self._forget(longest_silent)
        return known

    def forget(self, worker_id: str) -> None:
        """Whoever speaks on the connection of this worker has to send HELLO again."""
        if (member := self._by_id.get(worker_id)) is not None:
            self._forget(member)

    def may_live(self, worker_id: str, *, now: float) -> bool:
        """Whether the lease of this worker runs, or may run from the server's former epoch."""
        member = self._by_id.get(worker_id)
        return now < self._presumed_until if member is None else member.alive

    def may_return(self, worker_id: str, *, now: float) -> bool:
        """Whether this worker may still be waited for: it was heard of in the last day, or in the server's first."""
        member = self._by_id.get(worker_id)
        return now - (self._others_heard if member is None else member.last_heard) < SILENT_SECONDS

    def known_at(self, peer: PeerId) -> Member | None:
        """The member at this connection; its lease is not renewed."""
        return self._by_peer.get(peer)

    def heard_from(self, peer: PeerId, *, now: float) -> Member | None:
        """The member at this connection, whose lease is renewed; None for a peer that is none, or has said GOODBYE."""
        member = self._by_peer.get(peer)
        if member is None or member.left:
            return None
        member.last_heard, member.alive = now, True
        self._living[member.worker_id] = member
        return member

    def leave(self, member: Member) -> None:
        self._end_lease(member)
        member.left = True

    def expire(self, *, now: float) -> list[Member]:
        """End the leases of members that were silent for too long; return these members."""
        ended = [member for member in self.alive() if now - member.last_heard > self.lease_seconds]
        for member in ended:
            self._end_lease(member)
        return ended

    def is_newly_alone(self, *, now: float) -> bool:
        """Whether no worker has been alive for ALONE_SECONDS; True once, until one was."""
        if self._living:
            self._alone_since = now
            return False
        is_new = self._alone_since is not None and now - self._alone_since > ALONE_SECONDS
        if is_new:
            self._alone_since = None
        return is_new

    def alive(self) -> list[Member]:
        return list(self._living.values())

    def count_alive(self) -> int:
        """How many they are; a push must not cost a list of thousands."""
        return len(self._living)

    def who_may_push(self) -> list[Member]:
        """The living members that may push soon: pushes of others may wait for theirs."""
        return [member for member in self._living.values() if member.may_push]

    def is_quorum(self, count: int) -> bool:
        """Whether the trainers of `count` living members are not stalled."""
        return sum(not member.stalled for member in self._living.values()) >= count

    def living(self, worker_id: str) -> Member | None:
        return self._living.get(worker_id)

    def is_alive(self, worker_id: str) -> bool:
        return worker_id in self._living

    def may_push(self, worker_id: str) -> bool:
        """Whether this worker lives, and may push soon."""
        member = self._living.get(worker_id)
        return member is not None and member.may_push

    def all(self) -> list[Member]:
        """Every member, the living first, each part in order of joining."""
        return sorted(self._by_id.values(), key=lambda member: (not member.alive, member.number))

    def _end_lease(self, member: Member) -> None:
        member.alive = False
        self.ended_leases += 1
        self._living.pop(member.worker_id, None)

    def _forget(self, member: Member) -> None:
        self.ended_leases += 1
        self._living.pop(member.worker_id, None)
        self._by_id.pop(member.worker_id, None)
        self._by_peer.pop(member.peer, None)
