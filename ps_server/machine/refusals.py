"""
Who was told no, how often and why; and who is not heard because of it (refusals.py).

Who keeps sending what must be refused is not heard for a while; each time for longer.

A worker is known by its id, on whatever connection; a stranger by its connection. Honest peers have none of this: a
push that is late, early, sent twice or meant for another run is no offence.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from common.protocol.messages import Refused
from ps_server.machine.effects import Effect, Note, Send
from ps_server.machine.membership import Membership, PeerId

NOT_ADMITTED = {
    "other_run", "name_taken", "not_yours", "superseded", "contradiction", "protocol", "bad_run", "too_many_workers",
}  # fmt: skip
TOLD = {10**power for power in range(1, 16)}  # refusals of one member with one code, in its log


class Refusals:
    """Counted by code, for each member too. A peer is a worker on any connection, or a stranger on this one."""

    def __init__(self, membership: Membership) -> None:
        self.counts: Counter[str] = Counter()
        self._membership = membership
        self._quarantine = Quarantine()

    def seconds_left(self, peer: PeerId, *, now: float) -> float:
        """For how long a peer is not heard; 0 when it is."""
        return self._quarantine.seconds_left(self._name_of(peer), now=now)

    def count(self, peer: PeerId, code: str, *, now: float) -> None:
        """Something of this peer was refused, or one of its pushes discarded."""
        self.counts[code] += 1
        if (member := self._membership.known_at(peer)) is not None:
            member.refused[code] += 1
        if code in OFFENCES:
            self._quarantine.offence(self._name_of(peer), now=now)

    def refuse(self, peer: PeerId, code: str, reason: str, request: int, *, now: float) -> list[Effect]:
        """
        SendToPrimary a peer no, and remember it.

        A worker that is not admitted, and a member that is refused again and again, are in the log, the 1st, 10th,
        100th … time.
        """
        self.count(peer, code, now=now)
        refused: list[Effect] = [Send(peer, Refused(request=request, code=code, reason=reason))]
        member = self._membership.known_at(peer)
        if member is not None and member.refused[code] in TOLD:
            times = f"{member.worker_id} was refused {member.refused[code]} times ({code})"
            refused.append(Note(f"{times}: {reason}", warning=True))
        if member is None and code in NOT_ADMITTED and self.counts[code] in {1, *TOLD}:
            refused.append(Note(f"not admitted ({code}, {self.counts[code]} so far): {reason}", warning=True))
        return refused

    def _name_of(self, peer: PeerId) -> str | PeerId:
        member = self._membership.known_at(peer)
        return peer if member is None else member.worker_id


OFFENCES = {
    "bad_message", "unknown_codec", "wrong_size", "not_finite", "absurd_norm", "absurd_steps", "bad_schema",
}  # fmt: skip
STRIKES = 10  # offences in a short time
FORGIVEN_SECONDS = 10.0  # after which one offence less counts
FIRST_SECONDS = 1.0  # of silence; doubles each time
LONGEST_SECONDS = 300.0  # and after so long without an offence it begins anew
MOST_RECORDS = 10_000


@dataclass
class _Record:
    strikes: float = 0.0
    times: int = 0  # that it was not heard
    last_offence: float = 0.0
    until: float = 0.0


class Quarantine:
    """Offences by offender. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()  # the latest offender last

    def offence(self, who: Hashable, *, now: float) -> None:
        """It has sent something that had to be refused."""
        record = self._records.pop(who, None)
        if record is None or now - record.last_offence > LONGEST_SECONDS:
            record = _Record()
        else:
            record.strikes = max(0.0, record.strikes - (now - record.last_offence) / FORGIVEN_SECONDS)
        record.strikes += 1
        record.last_offence = now
        if record.strikes >= STRIKES:
            record.until = now + min(FIRST_SECONDS * 2**record.times, LONGEST_SECONDS)
            record.times += 1
            record.strikes = STRIKES / 2
        self._records[who] = record
        if len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)

    def seconds_left(self, who: Hashable, *, now: float) -> float:
        """For how long it is not heard; 0 when it is."""
        record = self._records.get(who)
        return max(0.0, record.until - now) if record else 0.0
