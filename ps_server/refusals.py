"""Who was told no, how often and why; and who is not heard because of it (quarantine.py)."""

from collections import Counter

from common.messages import Refused
from ps_server.effects import Effect, Note, Send
from ps_server.membership import Membership, PeerId
from ps_server.quarantine import OFFENCES, Quarantine

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
        Tell a peer no, and remember it.

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
