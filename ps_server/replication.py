"""
What the standby of this server is sent: one whole state, then everything that changes the run, numbered, in order.

Nobody waits for a standby. It is sent a window at a time; what it has not acknowledged is kept, and sent again when
nothing is heard of it for a while. One that falls too far behind is dropped, and may ask for a new state.

While a standby follows, pushes are durable only when it has them too: then it can take over at any moment, and has
every push that no worker keeps any more. It has our word for that until its lease ends, and one that is dropped until
then too.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from common.messages import Follow, Followed, Leading, Opened, Push, PushPull, Refused, Report, State, Stop, Update
from common.wire import Buffer
from ps_server.denied import Denied
from ps_server.effects import Effect, Note, Send
from ps_server.membership import PeerId
from ps_server.training_run import TrainingRun
from ps_server.whole_state import state_of

WINDOW = 4  # messages under way; below the shell's SEND_HIGH_WATER, beyond which they would be lost
LEASE_SECONDS = 3.0  # without a word from the standby, after which it is taken for gone
BACKLOG_BYTES = 2**28  # of updates that are not acknowledged
OVERHEAD_BYTES = 1024  # of an update beside its vector
AGAIN_SECONDS = 0.5  # without progress, until what is under way is sent again; longer when it is large
SLOWEST_BYTES_PER_SECOND = 1e6


@dataclass(frozen=True, eq=False)
class _Item:
    """A message that is not acknowledged."""

    message: State | Update
    vector: Sequence[Buffer]
    size: int


@dataclass(eq=False)
class _Standby:
    """
    Who follows. Invariant: the first `under_way` items of the queue have been sent.

    `promised` is 0 until it has the state; then the number up to which pushes may have been told to be durable without
    it.
    """

    peer: PeerId
    address: str
    request: int
    heard: float
    progressed: float
    queue: deque[_Item] = field(default_factory=deque)
    queued_bytes: int = 0  # of updates
    under_way: int = 0
    acknowledged: int = 0
    promised: int = 0
    fell_behind: bool = False


class Replication:
    """The standby of one server in one epoch, if there is one. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self.number = 0  # of the newest update
        self._standby: _Standby | None = None

    @property
    def followed(self) -> int | None:
        """The number up to which a standby has everything; None when nobody waits for one."""
        return self._standby.acknowledged if self._standby is not None and self._standby.promised else None

    def follow(self, peer: PeerId, wish: Follow, run: TrainingRun, *, now: float) -> list[Effect]:
        """Somebody wants to be the standby. Raises Denied when another one is."""
        known = self._standby
        if known is not None and known.peer == peer and wish.request <= known.request:
            known.heard = now
            return []  # it is sent the state already
        if known is not None and known.address != wish.address:
            raise Denied("followed", f"this server has a standby, {known.address}; it may have one")
        self.number += 1
        state, vector = state_of(run, request=wish.request, number=self.number, now=now)
        self._standby = standby = _Standby(peer, wish.address, wish.request, heard=now, progressed=now)
        standby.queue.append(_Item(state, vector, 0))
        return [Note(f"{wish.address} wants to be the standby: sending it the run"), *self._send_waiting(now=now)]

    def acknowledge(self, peer: PeerId, ack: Followed, run: TrainingRun, *, now: float) -> list[Effect]:
        """The standby lives, and has everything up to a number. Raises Denied when it is none of ours."""
        standby = self._standby
        if standby is None or (standby.peer, standby.request) != (peer, ack.follow):
            raise Denied("not_following", "this server does not know you as its standby; say FOLLOW")
        if standby.fell_behind:
            raise Denied("fell_behind", "the standby was too slow; it may say FOLLOW again")
        standby.heard = now
        effects: list[Effect] = []
        while standby.under_way and standby.queue[0].message.number <= ack.number:
            item = standby.queue.popleft()
            standby.queued_bytes -= item.size
            standby.under_way -= 1
            standby.progressed = now
            standby.acknowledged = item.message.number
        if standby.acknowledged and not standby.promised:
            standby.promised = self.number
            effects.append(Note(f"{standby.address} follows as the standby"))
        effects += self._send_waiting(now=now)
        if ack.request:
            lineage = run.lineage
            leading = Leading(
                request=ack.request, run_id=lineage.run_id, epoch=lineage.epoch, promised=standby.promised
            )
            effects.append(Send(peer, leading))
        return effects

    def repeat(
        self,
        worker_id: str,
        message: Opened | Push | PushPull | Report,
        vector: Sequence[Buffer] = (),
        *,
        together: bool = False,
        now: float,
    ) -> list[Effect]:
        """This has changed the run. The vector is copied: it may lie in memory that its worker has lent."""
        standby = self._standby
        if standby is None or standby.fell_behind:
            return []
        vector = [bytes(buffer) for buffer in vector]
        self.number += 1
        update = Update(
            request=standby.request, number=self.number, worker_id=worker_id, message=message, together=together
        )
        size = OVERHEAD_BYTES + sum(memoryview(buffer).nbytes for buffer in vector)
        standby.queue.append(_Item(update, vector, size))
        standby.queued_bytes += size
        if standby.queued_bytes > BACKLOG_BYTES and len(standby.queue) > WINDOW:
            standby.fell_behind = True
            standby.queue.clear()
            standby.under_way = 0
            return [Note(f"the standby {standby.address} is too slow and fell behind", warning=True)]
        return self._send_waiting(now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed."""
        standby = self._standby
        if standby is None:
            return []
        if now - standby.heard > LEASE_SECONDS:
            self._standby = None
            return [Note(f"the standby {standby.address} is gone; checkpoints alone count again", warning=True)]
        under_way = [standby.queue[at] for at in range(standby.under_way)]
        expected = sum(memoryview(buffer).nbytes for item in under_way for buffer in item.vector)
        if not under_way or now - standby.progressed <= AGAIN_SECONDS + expected / SLOWEST_BYTES_PER_SECOND:
            return []
        standby.under_way = 0
        return self._send_waiting(now=now)

    def begin_anew(self) -> list[Effect]:
        """The run has gone on in a way that no update tells: the standby has to ask for its state again."""
        standby, self._standby = self._standby, None
        if standby is None:
            return []
        reason = "the run went back to a checkpoint; say FOLLOW again"
        return [Send(standby.peer, Refused(request=standby.request, code="not_following", reason=reason))]

    def end(self, reason: str) -> list[Effect]:
        """The run is over."""
        standby, self._standby = self._standby, None
        return [] if standby is None else [Send(standby.peer, Stop(reason=reason))]

    def _send_waiting(self, *, now: float) -> list[Effect]:
        standby = self._standby
        assert standby is not None, "there is something to send to it"
        effects: list[Effect] = []
        while standby.under_way < min(WINDOW, len(standby.queue)):
            if standby.under_way == 0:
                standby.progressed = now
            item = standby.queue[standby.under_way]
            standby.under_way += 1
            effects.append(Send(standby.peer, item.message, vector=item.vector))
        return effects
