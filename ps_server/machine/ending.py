"""
The end of a server: the run is over, the server is asked to leave, or another server has the run.

A server that is asked to leave hands the run over to its standby, if it has one. From then on it settles nothing. The
standby is promoted once it has every update, and confirms that with FENCE. A server without a standby, or whose standby
does not confirm in time, exits; the shell then writes the last checkpoint.

A worker or a standby of another run fences no run that has weights. A server without weights gives way to the successor
of the server that was here before it.
"""

import enum
import shlex
from typing import TypeGuard

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Fence, HandedOver, Hello, Refused, RunRequest, Stop, ToServer
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_server.machine.membership import Membership
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.replication.first_shard import run_reply
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, Exit, LogLine, PeerId, Send
from ps_server.state.training_run import TrainingRun

DRAIN_SECONDS = 5.0  # how long workers have to say GOODBYE when the run ends
INFORM_SECONDS = 1.0  # after that, for other shards to ask whether the run is over
HANDOVER_SECONDS = 1.5  # how long the standby has to be promoted when this server is asked to leave
# How long a fenced server stays: ZeroMQ drops what a worker has not read yet when the connection ends. A worker that
# misses the refusal notices only by its link timeout that the run is elsewhere.
FAREWELL_SECONDS = 0.2


class Phase(enum.Enum):
    EMPTY = "empty"  # no weights yet: waiting for a worker to seed them
    SERVING = "serving"  # weights are being trained
    DRAINING = "draining"  # the run is over: weights may be read, not changed
    HANDING_OVER = "handing over"  # asked to leave: the standby is to be promoted, and nothing is settled any more
    FENCED = "fenced"  # another server serves the run: this one neither changes nor saves it


class Ending:
    """Whether and how one server ends. At most one of `fenced`, `is_draining` and `is_handing_over` ends it."""

    def __init__(self, membership: Membership, pushes: PushPipeline, replication: Replication) -> None:
        self.fenced = ""  # why this server has ended, though the run goes on elsewhere
        self.gives_way_to = ""  # HOST:PORT of a server that serves what was served here before this one
        self.handed_over_to = ""  # HOST:PORT of the standby that has confirmed the handover
        self.reason = ""  # why the run is over
        self.failed = False  # whether it is over because something in it went wrong
        self._phase: Phase | None = None
        self._exit_due = 0.0
        self._exited = False
        self._uninformed: set[int] = set()  # shards that do not know yet that the run is over
        self._membership, self._pushes, self._replication = membership, pushes, replication

    @property
    def phase(self) -> Phase | None:
        """DRAINING, HANDING_OVER or FENCED; None while the server goes on."""
        return self._phase

    def drain(self, reason: str, *, failed: bool, uninformed: set[int], now: float) -> list[Effect]:
        """
        The run is over: send STOP, and exit when the workers have left, and the `uninformed` shards know it.

        Nothing if the server ends already.
        """
        if self._phase is not None:
            return []
        reason = as_text(reason, LONGEST_SENTENCE)  # it may have the path of a folder
        self._uninformed, self.failed = uninformed, failed
        self._phase, self.reason, self._exit_due = Phase.DRAINING, reason, now + DRAIN_SECONDS
        self._pushes.gate.drop_all()
        stops = [Send(member.peer, Stop(reason=reason)) for member in self._membership.alive()]
        line = f"the run has failed: {reason}" if failed else f"the run is over: {reason}"
        return [LogLine(line, warning=failed, kind="end"), *stops, *self._replication.end(reason)]

    def reply(
        self, peer: PeerId, message: ToServer, run: TrainingRun | None, lineage: Lineage, *, now: float
    ) -> list[Effect]:
        """
        The reply to a request that is too late: STOP, and to another shard RUN with the ending.

        Another shard has no reply before the workers have left: by then it has all their pushes.
        """
        if not isinstance(message, RunRequest) or not message.shard:
            return [Send(peer, Stop(reason=self.reason, request=message.request))]
        if not self._have_left(now=now):
            return []
        self.informed(message.shard)
        return [Send(peer, run_reply(message, run, lineage, ending=self.reason))]

    def informed(self, shard: int) -> None:
        """This shard knows that the run is over."""
        self._uninformed.discard(shard)

    def leave(self, run: TrainingRun | None, *, now: float) -> list[Effect]:
        """This server is asked to leave: hand over, or exit at once. A second call changes nothing."""
        if self._phase is Phase.HANDING_OVER:
            return []
        standby = self._replication.address
        if self._phase is not None or not standby or run is None:
            return [Exit("asked to leave")]
        self._phase, self._exit_due = Phase.HANDING_OVER, now + HANDOVER_SECONDS
        self._pushes.gate.drop_all()
        run.log.append(HandedOver())  # the last entry: the standby is promoted when it has applied everything before
        return [LogLine(f"asked to leave: {standby} is to be promoted")]

    def fence(self, run: TrainingRun, address: str, *, epoch: int, now: float) -> list[Effect]:
        """
        Another server serves the run in this later epoch, at `address` if known. This one saves nothing more, and exits
        when its workers have had time to read that.
        """
        was_resumed = run.lineage.was_resumed(epoch)
        address = address or ("" if was_resumed else run.standby)
        run.lineage = run.lineage.replaced(address, epoch=epoch)
        self.handed_over_to = address if self._phase is Phase.HANDING_OVER else ""
        return self._refuse_all(OLDER if was_resumed and not address else advice(address), now=now)

    def give_way(self, fence: Fence, *, now: float) -> list[Effect]:
        """
        The sender serves a run that was served at this address before. This server has no weights yet, and begins no
        second run.
        """
        self.gives_way_to = fence.address
        why = (
            f"{fence.address} serves run {fence.run_id} now, which was served here before: no other is begun; to "
            f"begin a new run, end that one (ps-ctl stop --server {shlex.quote(fence.address)}) or take another --port"
        )
        return [LogLine(why, warning=True), *self._refuse_all(why, now=now)]

    def tick(self, *, now: float) -> list[Effect]:
        if self._exited or self._phase is None:
            return []
        if now < self._exit_due and (self._phase is not Phase.DRAINING or not self._have_left(now=now)):
            return []
        if self._uninformed and now < self._exit_due + INFORM_SECONDS:
            return []
        self._exited = True
        if self._phase is not Phase.HANDING_OVER:
            return [Exit(self.fenced or self.reason)]
        slow = f"{self._replication.address or 'the standby'} has not confirmed within {HANDOVER_SECONDS:g} s"
        return [LogLine(f"{slow} that it serves the run; it may do so yet", warning=True), Exit("asked to leave")]

    def _refuse_all(self, why: str, *, now: float) -> list[Effect]:
        self._phase, self.fenced, self._exit_due = Phase.FENCED, why, now + FAREWELL_SECONDS
        self._pushes.gate.drop_all()
        refusal = Refused(request=0, code="fenced", reason=why)
        return [Send(member.peer, refusal) for member in self._membership.alive()]

    def _have_left(self, *, now: float) -> bool:
        return now >= self._exit_due or not self._membership.alive()


def is_fenced_by(message: ToServer, run: TrainingRun | None) -> TypeGuard[Hello | Fence]:
    """Whether the message proves that this run is served in a later epoch. A claim without the proof is ignored."""
    if run is None or not isinstance(message, Hello | Fence) or message.run_id != run.lineage.run_id:
        return False
    return message.latest_epoch > run.epoch and run.lineage.proves(message.latest_epoch, message.epoch_proof)


# Of a folder that was restored from a backup, or copied.
OLDER = (
    "this folder is of an earlier life of the run: its server was started again since, from another copy of the "
    "folder, and workers have seen that. This server is over: resume the newest copy. Only if that is lost, resume "
    "the older state here: ps-server --resume RUN_DIR --take-back"
)


def advice(address: str) -> str:
    """Advice to the user of a fenced server; `address` is where the run is served now, "" if that is unknown."""
    where = address or "HOST:PORT"
    return (
        f"{address or 'another server'} serves this run now, and its checkpoints continue there. This server is over: "
        f"start it as the standby of the other, in a new folder: ps-server --standby-of {where} --run-dir FOLDER. Only "
        "if the other and its folder are lost, resume the older state here: ps-server --resume RUN_DIR --take-back"
    )
