"""Who was told no, how often and why; and who is not heard because of it (quarantine.py)."""

from collections import Counter

from common.messages import Refused
from ps_server.effects import Effect, Note, Send
from ps_server.membership import Membership, PeerId
from ps_server.quarantine import OFFENCES, Quarantine

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
        """Tell a peer no, and remember it. A member that is told so again and again is named in the log."""
        self.count(peer, code, now=now)
        refused: list[Effect] = [Send(peer, Refused(request=request, code=code, reason=reason))]
        member = self._membership.known_at(peer)
        if member is not None and member.refused[code] in TOLD:
            times = f"{member.worker_id} was refused {member.refused[code]} times ({code})"
            refused.append(Note(f"{times}: {reason}", warning=True))
        return refused

    def _name_of(self, peer: PeerId) -> str | PeerId:
        member = self._membership.known_at(peer)
        return peer if member is None else member.worker_id
