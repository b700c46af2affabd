"""
The replication of a run to one standby, the reader of the run's log: the whole run at a position, then every entry.

When a standby has acknowledged everything but what is younger than a second, no push is durable without it any more.
It is in sync when it has said that it knows this, and has all that was durable before: then it can be promoted at once.

No worker waits for a standby. One that is not in sync yet delays nothing. A standby in sync that lags while a resend
buffer fills up is dropped; so is one whose backlog takes too much memory. A dropped or silent standby may still be
promoted, so no push is durable without it until it sends FOLLOW again or its lease ends. It gets the run again after a
pause.
"""

from dataclasses import dataclass
from math import inf

import msgspec

from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Follow, Followed, Leading, Refused, Update
from ps_common.protocol.status import StandbyStatus
from ps_common.release import of_other
from ps_server.replication.pair_states import AT_PRIMARY, AtPrimary, OfStandby
from ps_server.replication.standby_copy import WINDOW, Backlog, state_of
from ps_server.state.change_log import ChangeLog, Entry
from ps_server.state.effects import Effect, LogLine, PeerId, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

LEASE_SECONDS = 3.0  # without a message of the standby, after which it is gone
IN_SYNC_SECONDS = 1.0  # the longest lag with which a standby comes to be in sync
LATE_SECONDS = LEASE_SECONDS + 0.5  # a longer lag of a standby that is not silent costs it its place, if a worker waits
BACKLOG_BYTES = 2**28  # the most that updates without acknowledgement may take
PAUSE_SECONDS = 30.0  # before a standby that was dropped is sent the state again


@dataclass(eq=False)
class _Standby:
    """The standby that followed last."""

    peer: PeerId
    follow: Follow  # its request; its process is known by a random text: two programs may give one address
    backlog: Backlog
    heard: float
    state: AtPrimary = AtPrimary.TRANSFER
    bound_at: int = 0  # changes after this position are durable only when it has them; 0: it is not bound
    again_at: float = 0.0  # the earliest moment at which one that could not keep up gets the run again

    @property
    def process(self) -> str:
        return self.follow.process or self.follow.address

    @property
    def is_sent_updates(self) -> bool:
        return self.state not in (AtPrimary.DROPPED, AtPrimary.GONE)

    def sees(self, event: OfStandby) -> None:
        self.state = AT_PRIMARY[self.state].get(event, self.state)
        if not self.is_sent_updates:
            self.backlog.clear()


def leading(request: int, lineage: Lineage, *, durable_through: int = 0, minutes: float = 0.0) -> Leading:
    """The reply of the server that serves the run in this epoch, with the proof of that."""
    return Leading(
        request=request,
        run_id=lineage.run_id,
        epoch=lineage.epoch,
        epoch_proof=lineage.proof,
        durable_through=durable_through,
        minutes=minutes,
    )


class Replication:
    """The standby of one server in one epoch, if there is one. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._standby: _Standby | None = None
        self._drops = 0

    @property
    def followed(self) -> float:
        """The position up to which the standby has everything; infinite when changes are durable without one."""
        standby = self._living
        return standby.backlog.acknowledged if standby is not None and standby.bound_at else inf

    @property
    def address(self) -> str:
        """HOST:PORT of the standby that follows, or that is getting the state; "" without one."""
        return self._following.follow.address if self._following is not None else ""

    @property
    def _living(self) -> _Standby | None:
        standby = self._standby
        return standby if standby is not None and standby.state is not AtPrimary.GONE else None

    @property
    def _following(self) -> _Standby | None:
        standby = self._standby
        return standby if standby is not None and standby.is_sent_updates else None

    def follow(self, peer: PeerId, follow: Follow, run: TrainingRun, *, now: float) -> list[Effect]:
        """A peer requests to be the standby. Raises Denied when there is another one."""
        known, living, process = self._standby, self._living, follow.process or follow.address
        if living is not None and living.process != process:
            own = living.follow.address
            at = f"another program at {own}" if own == follow.address else own
            raise Denied("followed", f"this server has a standby, {at}; it may have one, and that was heard just now")
        if known is not None and known.peer == peer and follow.request <= known.follow.request:
            if known.is_sent_updates:
                known.heard = now
                return []  # a retry: the state is on its way
            # A second state under the same number could not be told from the first, which may be in flight.
            return [_refused(peer, follow.request, "the state of this FOLLOW was sent; send FOLLOW with a new number")]
        if known is not None:
            known.sees(OfStandby.FOLLOW)
            if known.follow.address == follow.address and now < known.again_at:
                reason = f"the standby could not keep up; after {PAUSE_SECONDS:g} s it gets the run again"
                return [_refused(peer, follow.request, reason)]
        if not run.weights.is_all_finite():
            raise Denied("not_finite", "the weights hold NaN or Inf at this moment: there is no state to follow")
        state, vector = state_of(run, request=follow.request, now=now)
        self._standby = standby = _Standby(peer, follow, Backlog(state, vector, now=now), now)
        wants = f"{follow.address} wants to be the standby{of_other(follow.release)}: sending it the run"
        return [LogLine(wants, peer="standby"), *_waiting(standby, now=now)]

    def acknowledge(self, peer: PeerId, ack: Followed, run: TrainingRun, *, now: float) -> list[Effect]:
        """The standby lives, and has everything up to a position. Raises Denied when this peer is not the standby."""
        standby = self._living
        if standby is None or (standby.peer, standby.follow.request) != (peer, ack.follow):
            raise Denied("not_following", "this peer is not the standby of this server; send FOLLOW")
        if standby.state is AtPrimary.DROPPED:
            return [_refused(peer, ack.request, "the standby could not keep up; it may send FOLLOW again")]
        standby.heard = now
        standby.backlog.acknowledge(ack.number, now=now)
        if standby.backlog.acknowledged:
            standby.sees(OfStandby.HAS_THE_RUN)
        if standby.state is AtPrimary.CATCHING_UP and standby.backlog.lag(now=now).seconds <= IN_SYNC_SECONDS:
            standby.sees(OfStandby.KEEPS_UP)
            standby.bound_at = run.log.position
        effects = _waiting(standby, now=now)
        if ack.request:
            through, minutes = standby.bound_at, run.progress.minutes(now=now)
            effects.append(Send(peer, leading(ack.request, run.lineage, durable_through=through, minutes=minutes)))
        # The promise of LEADING has come there, and everything that was durable before it.
        if standby.state is AtPrimary.BOUND and standby.bound_at <= min(ack.durable_through, ack.number):
            standby.sees(OfStandby.KNOWS)
            effects.append(LogLine(f"{standby.follow.address} follows as the standby", peer="standby"))
        return effects

    def send_changes(self, log: ChangeLog, *, now: float) -> list[Effect]:
        """Send the changes of the run since the last call. Without a standby the log keeps none."""
        standby = self._following
        entries = log.take(is_read=standby is not None)
        if standby is None or not entries:
            return []
        for entry in entries:
            standby.backlog.add(_update_of(entry, standby.follow), entry.vector, now=now)
        if standby.backlog.update_bytes > BACKLOG_BYTES and len(standby.backlog) > WINDOW:
            return self._drop(standby, "its backlog takes too much memory here", now=now)
        return _waiting(standby, now=now)

    def worker_waits(self, worker_id: str, *, now: float) -> list[Effect]:
        """A resend buffer fills up with pushes that are in a checkpoint, and perhaps not at the standby."""
        standby = self._following
        if standby is None or not standby.bound_at or standby.backlog.lag(now=now).seconds <= LATE_SECONDS:
            return []
        return self._drop(standby, f"the resend buffer of {worker_id} fills up", now=now)

    def tick(self, *, now: float) -> list[Effect]:
        standby = self._living
        if standby is None:
            return []
        if now - standby.heard > LEASE_SECONDS:
            is_news = standby.is_sent_updates
            standby.sees(OfStandby.SILENCE)
            sentence = f"the standby {standby.follow.address} is gone; checkpoints alone count again"
            return [LogLine(sentence, warning=True, peer="standby")] if is_news else []
        return [Send(standby.peer, item.message, vector=item.vector) for item in standby.backlog.take_resends(now=now)]

    def status(self, *, now: float) -> StandbyStatus | None:
        """The standby that followed last, and its lag; None when there was none."""
        if (standby := self._standby) is None:
            return None
        shown, lag = standby.state, standby.backlog.lag(now=now)
        if not standby.is_sent_updates:
            shown = AtPrimary.DROPPED if now < standby.again_at else AtPrimary.GONE
        if shown is AtPrimary.BOUND:
            shown = AtPrimary.CATCHING_UP  # with what was durable before
        return StandbyStatus(
            address=standby.follow.address,
            release=standby.follow.release,
            phase=shown.value,
            lag_updates=lag.updates,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            drops=self._drops,
        )

    def rolled_back(self) -> list[Effect]:
        """The run was rolled back to a checkpoint, which no update describes: the standby needs the state again."""
        standby = self._living
        if standby is None:
            return []
        if standby.is_sent_updates:
            standby.sees(OfStandby.DROP)
        reason = "the run went back to a checkpoint; send FOLLOW again"
        return [Send(standby.peer, Refused(request=standby.follow.request, code="not_following", reason=reason))]

    def end(self, reason: str) -> list[Effect]:
        standby, self._standby = self._living, None
        return [] if standby is None else [Send(standby.peer, messages.Stop(reason=reason))]

    def _drop(self, standby: _Standby, why: str, *, now: float) -> list[Effect]:
        """Send it nothing more but the reason. `bound_at` holds for the rest of its lease."""
        lag = standby.backlog.lag(now=now)
        standby.sees(OfStandby.DROP)
        standby.again_at = now + PAUSE_SECONDS
        self._drops += 1
        behind = f"{lag.updates} updates ({lag.bytes / 2**20:.1f} MiB) behind, the oldest {lag.seconds:.1f} s old"
        reason = f"the standby {standby.follow.address} cannot keep up and is dropped: {behind}, and {why}"
        again = f"{reason}. It gets the run again after {PAUSE_SECONDS:g} s at the soonest"
        return [LogLine(again, warning=True, peer="standby"), _refused(standby.peer, standby.follow.request, reason)]


def _update_of(entry: Entry, follow: Follow) -> Update:
    message = entry.message
    if isinstance(message, messages.Push):
        message = msgspec.structs.replace(message, inline=b"", check="")  # its vector goes in frames
    return Update(
        request=follow.request,
        number=entry.position,
        worker_id=entry.worker_id,
        message=message,
        more_in_group=entry.more_in_group,
    )


def _waiting(standby: _Standby, *, now: float) -> list[Effect]:
    return [Send(standby.peer, item.message, vector=item.vector) for item in standby.backlog.take(now=now)]


def _refused(peer: PeerId, request: int, reason: str) -> Send:
    return Send(peer, Refused(request=request, code="fell_behind", reason=reason))
