"""
Refusals: how often which peer was refused and why, and the quarantine of peers that offend again and again.

An offence is a request that no sound program sends: bytes that are no message, a vector of another size. Sound programs
do send pushes that are late, early, sent twice, damaged on their way or meant for another run; and gradients that are
not finite, from bad input or too large a step. These cost no more than good ones. A peer with many offences in
a short time is in quarantine: its messages are refused unread, each time for longer. Offences count by worker id, on
whatever connection, or by connection while the peer is no member.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from ps_common.meters import POWERS_OF_TEN
from ps_common.protocol.messages import Refused
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_server.machine.membership import Membership
from ps_server.state.effects import Effect, LogLine, PeerId, Send

NOT_ADMITTED = {
    "other_run", "other_code", "name_taken", "not_yours", "superseded", "contradiction", "protocol", "bad_run",
    "too_many_workers",
}  # fmt: skip
LOGGED = POWERS_OF_TEN - {1}  # which refusals of a member, with one code, are in the log


class Refusals:
    """Counts refusals by code, of all peers and of each member."""

    def __init__(self, membership: Membership) -> None:
        self.counts: Counter[str] = Counter()
        self._membership = membership
        self._quarantine = Quarantine()

    def seconds_left(self, peer: PeerId, *, now: float) -> float:
        """How long a peer is in quarantine yet; 0 when it is in none."""
        return self._quarantine.seconds_left(self._name_of(peer), now=now)

    def count(self, peer: PeerId, code: str, reason: str, *, now: float) -> None:
        """Count a refused request or a discarded push."""
        self.counts[code] += 1
        if (member := self._membership.known_at(peer)) is not None:
            member.refused[code] += 1
            member.refusal = as_text(reason)
        if code in OFFENCES:
            self._quarantine.offence(self._name_of(peer), now=now)

    def refuse(self, peer: PeerId, code: str, reason: str, request: int, *, now: float) -> list[Effect]:
        """
        Reply REFUSED, and count it.

        The log shows the 10th, 100th, 1000th … refusal of a member, and the first refused HELLO too.
        """
        reason = as_text(reason, LONGEST_SENTENCE)  # it quotes settings of any length
        self.count(peer, code, reason, now=now)
        effects: list[Effect] = [Send(peer, Refused(request=request, code=code, reason=reason))]
        member = self._membership.known_at(peer)
        if member is not None and member.refused[code] in LOGGED:
            times = f"{member.worker_id} was refused {member.refused[code]} times ({code})"
            effects.append(LogLine(f"{times}: {reason}", warning=True, worker_id=member.worker_id))
        if member is None and code in NOT_ADMITTED and self.counts[code] in POWERS_OF_TEN:
            effects.append(LogLine(f"not admitted ({code}, {self.counts[code]} so far): {reason}", warning=True))
        return effects

    def _name_of(self, peer: PeerId) -> str | PeerId:
        member = self._membership.known_at(peer)
        return peer if member is None else member.worker_id


OFFENCES = {"bad_message", "unknown_codec", "wrong_size", "absurd_steps", "bad_schema"}
STRIKES = 10  # so many offences in a short time begin a quarantine
FORGIVEN_SECONDS = 10.0  # after which one offence less counts
FIRST_SECONDS = 1.0  # the first quarantine; each further one is twice as long
LONGEST_SECONDS = 300.0  # the longest quarantine; and after so long without an offence, the next one is a first one
MOST_DOUBLINGS = 30  # far beyond the longest
MOST_RECORDS = 10_000


@dataclass
class _Record:
    strikes: float = 0.0
    times: int = 0  # in quarantine
    last_offence: float = 0.0
    until: float = 0.0


class Quarantine:
    """Offences by offender. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()  # the latest offender last

    def offence(self, who: Hashable, *, now: float) -> None:
        """Count an offence; the quarantine begins with the last of STRIKES."""
        record = self._records.pop(who, None)
        if record is None or now - record.last_offence > LONGEST_SECONDS:
            record = _Record()
        else:
            record.strikes = max(0.0, record.strikes - (now - record.last_offence) / FORGIVEN_SECONDS)
        record.strikes += 1
        record.last_offence = now
        if record.strikes >= STRIKES:
            record.until = now + min(FIRST_SECONDS * 2.0 ** min(record.times, MOST_DOUBLINGS), LONGEST_SECONDS)
            record.times += 1
            record.strikes = STRIKES / 2
        self._records[who] = record
        self._forget(now=now)

    def _forget(self, *, now: float) -> None:
        """Forget offenders whose next offence would be a first one, and the earliest where there are too many."""
        while len(self._records) > MOST_RECORDS or now - self._earliest.last_offence > LONGEST_SECONDS:
            self._records.popitem(last=False)

    @property
    def _earliest(self) -> _Record:
        return next(iter(self._records.values()))

    def seconds_left(self, who: Hashable, *, now: float) -> float:
        """How long the quarantine lasts yet; 0 without one."""
        record = self._records.get(who)
        return max(0.0, record.until - now) if record else 0.0
