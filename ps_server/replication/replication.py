"""
The replication of a run to one standby: the state transfer, then every change, numbered and in order.

When a standby has acknowledged everything but what is younger than a second, no push is durable without it any more.
It is in sync when it has said that it knows this, and has all that was durable before: then it can take over at once.

No worker waits for a standby. One that is not in sync yet delays nothing. A standby in sync that lags while a resend
buffer fills up is dropped; so is one whose backlog takes too much memory. A dropped or silent standby may still take
over, so no push is durable without it until it sends FOLLOW anew or its lease ends. It gets the state again after a
pause, which doubles with each drop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import (
    Adjusted,
    Evaluation,
    Follow,
    Followed,
    HandedOver,
    Leading,
    Opened,
    Push,
    Refused,
    Report,
    RunReply,
    Stop,
    Update,
)  # fmt: skip
from ps_common.protocol.status import StandbyStatus
from ps_common.protocol.wire import Buffer
from ps_common.release import of_other
from ps_server.replication.standby_copy import WINDOW, Backlog, Lag, state_of
from ps_server.state.effects import Effect, LogLine, PeerId, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

LEASE_SECONDS = 3.0  # without a message of the standby, after which it is gone
IN_SYNC_SECONDS = 1.0  # the longest lag of a standby that is in sync
BACKLOG_BYTES = 2**28  # the most that updates without acknowledgement may take
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0  # before a standby that was dropped is sent the state again
FORGIVEN_SECONDS = 300.0  # in sync, after which the pause begins anew


@dataclass(eq=False)
class _Standby:
    """A standby that follows, or followed last."""

    peer: PeerId
    address: str
    request: int
    process: str  # by which it is known: two programs may give one address, such as those of containers
    backlog: Backlog
    heard: float
    release: str = ""  # of its program
    durable_through: int = 0  # the number up to which pushes may be durable without it; 0: any may be
    in_sync_since: float = inf
    is_dropped: bool = False
    pause_seconds: float = 0.0  # before it gets the state again; 0 where it was not dropped
    again_at: float = 0.0


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
        self.number = 0  # the number of the newest update
        self._standby: _Standby | None = None
        self._former: _Standby | None = None
        self._drops = 0

    @property
    def followed(self) -> int | None:
        """The number up to which the standby has everything; None when pushes are durable without one."""
        standby = self._standby
        return standby.backlog.acknowledged if standby is not None and standby.durable_through else None

    @property
    def address(self) -> str:
        """HOST:PORT of the standby that follows, or that is getting the state; "" without one."""
        return self._standby.address if self._standby is not None and not self._standby.is_dropped else ""

    def follow(self, peer: PeerId, follow: Follow, run: TrainingRun, *, now: float) -> list[Effect]:
        """A peer requests to be the standby. Raises Denied when there is another one, or this one is too old."""
        known, process = self._standby, follow.process or follow.address
        if known is not None and known.process != process:
            at = f"another program at {known.address}" if known.address == follow.address else known.address
            raise Denied("followed", f"this server has a standby, {at}; it may have one, and that was heard just now")
        if known is not None and (known.peer, known.is_dropped) == (peer, False) and follow.request <= known.request:
            known.heard = now
            return []  # a retry: the state is on its way
        former = self._former
        if former is not None and former.peer == peer and follow.request <= former.request:
            # A second state under the same number could not be told from the first, which may be in flight.
            return [_refused(peer, follow.request, "the state of this FOLLOW was sent; send FOLLOW with a new number")]
        self._standby = None  # the same process sends FOLLOW anew: it knows of the drop, and is not promoted
        if former is not None and former.address == follow.address and now < former.again_at:
            reason = f"the standby could not keep up; after {former.pause_seconds:g} s it gets the run again"
            return [_refused(peer, follow.request, reason)]
        if not run.weights.is_sound():
            raise Denied("not_finite", "the weights hold NaN or Inf at this moment: there is no state to follow")
        self.number += 1
        state, vector = state_of(run, request=follow.request, number=self.number, now=now)
        backlog = Backlog(state, vector, now=now)
        self._standby = _Standby(peer, follow.address, follow.request, process, backlog, heard=now)
        self._standby.release = follow.release
        wants = f"{follow.address} wants to be the standby{of_other(follow.release)}: sending it the run"
        return [LogLine(wants, peer="standby"), *self._send_waiting(now=now)]

    def acknowledge(self, peer: PeerId, ack: Followed, run: TrainingRun, *, now: float) -> list[Effect]:
        """The standby lives, and has everything up to a number. Raises Denied when this peer is not the standby."""
        standby = self._standby
        if standby is None or (standby.peer, standby.request) != (peer, ack.follow):
            raise Denied("not_following", "this peer is not the standby of this server; send FOLLOW")
        if standby.is_dropped:
            return [_refused(peer, ack.request, "the standby could not keep up; it may send FOLLOW again")]
        standby.heard = now
        standby.backlog.acknowledge(ack.number, now=now)
        effects: list[Effect] = []
        keeps_up = standby.backlog.acknowledged and standby.backlog.lag(now=now).seconds <= IN_SYNC_SECONDS
        if keeps_up and not standby.durable_through:
            standby.durable_through = self.number
        effects += self._send_waiting(now=now)
        if ack.request:
            through, minutes = standby.durable_through, run.progress.minutes(now=now)
            effects.append(Send(peer, leading(ack.request, run.lineage, durable_through=through, minutes=minutes)))
        if standby.in_sync_since == inf and 0 < standby.durable_through <= min(ack.durable_through, ack.number):
            standby.in_sync_since = now
            effects.append(LogLine(f"{standby.address} follows as the standby", peer="standby"))
        return effects

    def forward(
        self,
        worker_id: str,
        message: Opened | Push | Report | Adjusted | Evaluation | RunReply | HandedOver,
        vector: Sequence[Buffer] = (),
        *,
        together: bool = False,
        now: float,
    ) -> list[Effect]:
        """A message has changed the run. Its vector does not change any more."""
        standby = self._standby
        if standby is None or standby.is_dropped:
            return []
        self.number += 1
        update = Update(
            request=standby.request, number=self.number, worker_id=worker_id, message=message, together=together
        )
        standby.backlog.add(update, vector, now=now)
        if standby.backlog.update_bytes > BACKLOG_BYTES and len(standby.backlog) > WINDOW:
            return self._drop(standby, "its backlog takes too much memory here", now=now)
        return self._send_waiting(now=now)

    def worker_waits(self, worker_id: str, *, now: float) -> list[Effect]:
        """A resend buffer fills up with pushes that are in a checkpoint, and perhaps not at the standby."""
        standby = self._standby
        if standby is None or standby.is_dropped or not standby.durable_through:
            return []
        if standby.backlog.lag(now=now).seconds <= IN_SYNC_SECONDS:
            return []
        return self._drop(standby, f"the resend buffer of {worker_id} is half full", now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed."""
        standby = self._standby
        if standby is None:
            return []
        if now - standby.heard > LEASE_SECONDS:
            self._standby = None
            if standby.is_dropped:
                return []
            self._put_away(standby)
            sentence = f"the standby {standby.address} is gone; checkpoints alone count again"
            return [LogLine(sentence, warning=True, peer="standby")]
        return [Send(standby.peer, item.message, vector=item.vector) for item in standby.backlog.take_resends(now=now)]

    def status(self, *, now: float) -> StandbyStatus | None:
        """The standby and its lag, or the one that followed last; None when there was none."""
        standby, former = self._standby, self._former
        if standby is not None and not standby.is_dropped:
            phase = "catching up" if standby.backlog.acknowledged else "state transfer"
            phase = "in sync" if standby.in_sync_since < inf else phase
            return _status(standby, phase, standby.backlog.lag(now=now), self._drops)
        if former is None:
            return None
        return _status(former, "dropped" if now < former.again_at else "gone", Lag(), self._drops)

    def violations(self) -> Iterator[str]:
        """The violations of the updates that the standby was sent."""
        if self._standby is not None and not self._standby.is_dropped:
            yield from self._standby.backlog.violations(self.number)

    def begin_anew(self) -> list[Effect]:
        """The run went back to a checkpoint, which no update describes: the standby needs the state again."""
        standby = self._standby
        if standby is None:
            return []
        if not standby.is_dropped:  # it may take over yet: its lease holds, as that of one that could not keep up
            standby.is_dropped = True
            self._put_away(standby)
            self.number += 1  # a standby that had everything has not the weights of that checkpoint
        reason = "the run went back to a checkpoint; send FOLLOW again"
        return [Send(standby.peer, Refused(request=standby.request, code="not_following", reason=reason))]

    def end(self, reason: str) -> list[Effect]:
        """The run is over."""
        standby, self._standby = self._standby, None
        return [] if standby is None else [Send(standby.peer, Stop(reason=reason))]

    def _put_away(self, standby: _Standby) -> None:
        """It is the former one from now on, through no fault of its own: the next pause is that of the one before."""
        standby.pause_seconds = self._former.pause_seconds if self._former is not None else 0.0
        self._former = standby
        standby.backlog.clear()

    def _drop(self, standby: _Standby, why: str, *, now: float) -> list[Effect]:
        """Send it nothing more but the reason. `durable_through` holds for the rest of its lease."""
        lag, pause = standby.backlog.lag(now=now), FIRST_PAUSE_SECONDS
        kept_up = now - standby.in_sync_since > FORGIVEN_SECONDS
        if self._former is not None and self._former.pause_seconds and not kept_up:
            pause = min(2 * self._former.pause_seconds, LONGEST_PAUSE_SECONDS)
        standby.is_dropped, standby.pause_seconds, standby.again_at = True, pause, now + pause
        self._former = standby
        self._drops += 1
        standby.backlog.clear()
        behind = f"{lag.updates} updates ({lag.bytes / 2**20:.1f} MiB) behind, the oldest {lag.seconds:.1f} s old"
        reason = f"the standby {standby.address} cannot keep up and is dropped: {behind}, and {why}"
        line = LogLine(
            f"{reason}. It gets the run again after {pause:g} s at the soonest", warning=True, peer="standby"
        )
        return [line, _refused(standby.peer, standby.request, reason)]

    def _send_waiting(self, *, now: float) -> list[Effect]:
        standby = self._standby
        assert standby is not None, "only a standby has a backlog"
        return [Send(standby.peer, item.message, vector=item.vector) for item in standby.backlog.take(now=now)]


def _refused(peer: PeerId, request: int, reason: str) -> Send:
    return Send(peer, Refused(request=request, code="fell_behind", reason=reason))


def _status(standby: _Standby, phase: str, lag: Lag, drops: int) -> StandbyStatus:
    return StandbyStatus(
        address=standby.address,
        release=standby.release,
        phase=phase,
        lag_updates=lag.updates,
        lag_bytes=lag.bytes,
        lag_seconds=lag.seconds,
        drops=drops,
    )
