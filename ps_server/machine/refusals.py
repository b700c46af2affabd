"""
Refusals: how often which peer was refused and why.

A refused request costs no more than a good one, and is replied to. Only to bytes that are no message, which nothing but
their number limits, replies are few.
"""

from collections import Counter

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

    def count(self, peer: PeerId, code: str, reason: str) -> None:
        self.counts[code] += 1
        if (member := self._membership.known_at(peer)) is not None:
            member.refused[code] += 1
            member.refusal = as_text(reason)

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
        if self._membership.allowances.allow(peer, "nonsense", now=now):
            return self.refuse(peer, "bad_message", reason, request=0)
        self.count(peer, "bad_message", reason)
        return []

    def refuse(self, peer: PeerId, code: str, reason: str, request: int) -> list[Effect]:
        """
        Reply REFUSED, and count it.

        The log shows the 10th, 100th, 1000th … refusal of a member, and the first refused HELLO too.
        """
        reason = as_text(reason, LONGEST_SENTENCE)  # it quotes settings of any length
        self.count(peer, code, reason)
        effects: list[Effect] = [Send(peer, Refused(request=request, code=code, reason=reason))]
        member = self._membership.known_at(peer)
        if member is not None and member.refused[code] in LOGGED:
            times = f"{member.worker_id} was refused {member.refused[code]} times ({code})"
            effects.append(LogLine(f"{times}: {reason}", warning=True, worker_id=member.worker_id))
        if member is None and code in NOT_ADMITTED and self.counts[code] in POWERS_OF_TEN:
            effects.append(LogLine(f"not admitted ({code}, {self.counts[code]} so far): {reason}", warning=True))
        return effects
