"""
The parameter server as a machine: messages in, effects out.

This file decides which requests are legal, and who answers each. The path of a push is in push_pipeline.py, the end of
the server in ending.py. No file here knows sockets, files or clocks: the shell (zmq_server.py) passes `now`.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.protocol.record import Record
from ps_common.protocol.status import Status
from ps_common.protocol.wire import Buffer
from ps_server.machine.admission import Admission, run_for, welcome
from ps_server.machine.checkpoint_schedule import CheckpointSchedule, Saving
from ps_server.machine.ending import Ending, is_fenced_by
from ps_server.machine.flow_control import Limits
from ps_server.machine.membership import ALONE, Member, Membership
from ps_server.machine.operator_requests import OperatorRequest, OperatorRequests
from ps_server.machine.phases import ACCEPTS, ANYBODY, Phase, Sender, check_sender
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.machine.refusals import Refusals
from ps_server.machine.status_report import SharedStatus, status_of
from ps_server.machine.worker_requests import WorkerRequests
from ps_server.replication.first_shard import FirstShard
from ps_server.replication.replication import Replication, leading
from ps_server.state.effects import Effect, LogLine, PeerId, Recall, Send
from ps_server.state.guards import Denied
from ps_server.state.soundness import NOTHING_TO_GO_BACK_TO, Soundness
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun


class ParameterServer:
    """
    The server of one run in one epoch; `lineage` names both.

    `run` is None until the first worker proposes a run. `overrides` are flat settings from the server's own flags, and
    take precedence over that worker's. `start` are the weights that a new run begins with; None: that worker's.
    """

    def __init__(
        self,
        run: TrainingRun | None,
        *,
        lineage: Lineage,
        overrides: dict[str, Any],
        limits: Limits,
        now: float,
        start: StartingWeights | None = None,
    ) -> None:
        self.run = run
        # For a run that no worker has proposed yet.
        self._lineage, self._overrides = lineage, overrides
        self.first_shard = FirstShard(lineage.shard, overrides)
        self.membership = Membership(limits.lease_seconds, now=now)
        self.refusals = Refusals(self.membership)
        self.replication = Replication()
        episodes = run.progress.episodes if run else 0
        every_seconds = (run and run.adjustments.checkpoint_seconds) or limits.checkpoint_seconds
        self.checkpoints = CheckpointSchedule(every_seconds, saved_version=self.version, episodes=episodes, now=now)
        self.checkpoints.saved_settings = run.adjustments.version if run else 0
        soundness = Soundness()
        self._saving = Saving(self.checkpoints, self.replication, self.refusals, soundness)
        parts = self.membership, self.refusals, self.replication, soundness, self.first_shard
        self.pushes = PushPipeline(run, *parts, receive_bytes=limits.receive_bytes)
        self._admission = Admission(self.membership, self.replication, self.pushes)
        shared = self.membership, self.pushes, self.replication, self.checkpoints, self._saving
        self._requests = WorkerRequests(*shared, start)
        self._operators = OperatorRequests(*shared, SharedStatus(self.status))
        self.ending = Ending(self.membership, self.pushes, self.replication)
        self.process: dict[str, int] = {}  # fields of the status that the shell measures: memory and connections

    def __repr__(self) -> str:
        return f"<ParameterServer {self.phase.value} version={self.version} workers={self.membership.count_alive()}>"

    @property
    def lineage(self) -> Lineage:
        """The run id, the epoch, and the secret of the run."""
        return self.run.lineage if self.run else self._lineage

    @property
    def epoch(self) -> int:
        """Each server of the run, and each restart of one, has an epoch of its own."""
        return self.lineage.epoch

    @property
    def version(self) -> int:
        """The version of the weights; 0 before the run is seeded."""
        return self.run.store.version if self.run and self.run.store else 0

    @property
    def phase(self) -> Phase:
        """ACCEPTS says which requests are legal in it."""
        return self.ending.phase or (Phase.SERVING if self.version else Phase.EMPTY)

    # -- what the shell calls -----------------------------------------------------------------------------------------

    def receive(
        self, peer: PeerId, message: ToServer, vector: Sequence[Buffer] = (), *, now: float, sender: Sender = ANYBODY
    ) -> list[Effect]:
        """One message of a peer, and the buffers of its vector. No message raises; an illegal one is refused."""
        member = self.membership.heard_from(peer, now=now)
        legal = type(message) in ACCEPTS[self.phase]
        try:
            if not legal and self.phase is Phase.DRAINING:
                return self.ending.reply(peer, message, self.run, self.lineage, now=now)
            check_sender(message, sender, is_member=member is not None)
            if isinstance(message, messages.Fence) and self.phase is Phase.EMPTY and not self.membership.count_alive():
                refusal = self.refusals.refuse(peer, "fenced", "no run is begun here", message.request)
                return [*refusal, *self.ending.give_way(message, now=now)]
            self.first_shard.check(message, self.run)
            if is_fenced_by(message, self.run):
                refusal = self.refusals.refuse(peer, "fenced", "a later epoch is served", message.request)
                address = message.address if isinstance(message, messages.Fence) else ""
                return [*refusal, *self.fence(address, epoch=message.latest_epoch, now=now)]
            if not legal and self.phase is Phase.HANDING_OVER:
                return []  # the worker sends it again, to the standby
            if not legal and self.ending.fenced:
                raise Denied("fenced", self.ending.fenced)
            if not legal:
                raise Denied("no_weights", "the run has no weights yet; send SEED first")
            effects = [*self._reply(peer, member, message, vector, sender.key, now), *self._keep_time(now=now)]
        except Denied as denied:
            return self.refusals.refuse(peer, denied.code, str(denied), message.request)
        return effects + self._end_if_over(now=now)

    def receive_from_first_shard(self, message: ToWorker, *, now: float) -> list[Effect]:
        """A message of shard 1, or of its standby, to this other shard."""
        if not isinstance(message, messages.RunReply):
            return []
        if self.ending.phase is None:
            self.run, effects = self._operators.follow(self.first_shard, self.run, self.lineage, message, now=now)
            return effects + self._end_if_over(now=now)
        if message.state is not None and message.state.ending:
            self.ending.informed(1)
        return []

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
        """A peer has sent bytes that are no message."""
        return self.refusals.unreadable(peer, reason, now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed. To be called at least once a second."""
        effects = self.first_shard.ask(self.run, ending=self.ending.reason)
        for member in self.membership.expire(now=now):
            why = f"has been silent for {now - member.last_heard:.1f} s and is gone"
            effects.append(LogLine(f"{member.worker_id} {why}", warning=True, worker_id=member.worker_id))
        effects += [*self._keep_time(now=now), *self.replication.tick(now=now)]
        if self.run is not None:
            self.run.progress.tick(now=now)
            self.checkpoints.release(self.run.ledger, followed=self.replication.followed)
            effects += self.pushes.settle_ready(now=now)
        effects += [*self.pushes.grant_credit(now=now), *self._end_if_over(now=now)]
        if self.run is not None and self.phase not in (Phase.HANDING_OVER, Phase.FENCED):
            effects += self.pushes.watch_weights()
            if not any(isinstance(effect, Recall) for effect in effects):  # else there is nothing to save
                effects += self._saving.tick(self.run, now=now)
        return effects + self.ending.tick(now=now) + self._operators.subscriptions.tick(self._operators.status, now=now)

    def check(self) -> str:
        """The violations of this state, which nothing leads to, as one sentence; "" if there are none."""
        checkpoints = self.checkpoints.violations(version=self.version, number=self.replication.number)
        return as_text("; ".join((*checkpoints, *self.pushes.violations())), LONGEST_SENTENCE)

    def logged(self, line: LogLine, *, now: float) -> list[Effect]:
        """A line is in the log; now it becomes an event, for subscribers and the run's records."""
        return self._operators.subscriptions.add(line, self.run, now=now)

    @property
    def has_unsaved(self) -> bool:
        """Whether the run has an update, a game or an adjustment that the newest checkpoint lacks."""
        return self.run is not None and self.checkpoints.lacks(self.run)

    @property
    def lacks_last_checkpoint(self) -> bool:
        """Whether the run has weights, and its newest checkpoint is not that of a server that ends."""
        return self.has_unsaved or (self.version > 0 and not self.checkpoints.has_saved_last)

    def save(self, *, now: float, is_last: bool = False) -> list[Effect]:
        """Write a checkpoint of the weights unless one is being written, or it is fenced; `is_last`: at its end."""
        return [] if self.run is None or self.ending.fenced else self._saving.begin(self.run, now=now, is_last=is_last)

    def checkpoint_saved(self, path: str) -> list[Effect]:
        """The checkpoint that was being written is complete."""
        assert self.run is not None, "only a seeded run is written"
        return self._saving.completed(self.run, path)

    def checkpoint_failed(self, reason: str) -> list[Effect]:
        """The checkpoint could not be written."""
        assert self.run is not None, "only a seeded run is written"
        return self._saving.failed(self.run, reason)

    def recalled(self, checkpoint: str, vectors: dict[str, Tensor], record: Record, *, now: float) -> list[Effect]:
        """The newest sound checkpoint, of this name, was read: the run goes on from it."""
        assert self.run is not None, "only a seeded run is recalled"
        try:
            return self._saving.go_back(self.run, checkpoint, vectors, record)
        except CheckpointError as error:
            return self._end(str(error), failed=True, now=now)

    def recall_failed(self, reason: str, *, now: float) -> list[Effect]:
        """No sound checkpoint could be read."""
        return self._end(NOTHING_TO_GO_BACK_TO + reason, failed=True, now=now)

    def _reply(
        self, peer: PeerId, member: Member | None, message: ToServer, vector: Sequence[Buffer], key: str, now: float
    ) -> list[Effect]:
        match message:
            case messages.Push() if member is not None and self.run is not None:  # the most frequent one first
                return self._requests.reply(self.run, member, message, vector, now=now)
            case messages.Hello():
                return self._hello(peer, message, key=key, now=now)
            case messages.Pull():
                return [self.pushes.pull(peer, member, message, epoch=self.epoch)]
            case _ if isinstance(message, OperatorRequest):
                self.first_shard.hear(message, self.run)
                return self._operators.reply(self.run, peer, message, self.lineage, key=key, now=now)
            case messages.Fence():
                return [Send(peer, leading(message.request, self.lineage))]
            case messages.StopRequest(request=request, reason=reason, failed=failed):
                return [Send(peer, messages.Stopping(request=request)), *self._end(reason, failed=failed, now=now)]
            case messages.Goodbye() if member is None:
                return [Send(peer, messages.Farewell(request=message.request))]
        assert self.run is not None, "the other requests are for a run, which HELLO decides"
        if isinstance(message, messages.Follow | messages.Followed):
            return self._operators.reply_to_standby(self.run, peer, message, now=now)
        assert member is not None, "FROM_ANYBODY lists the requests of peers that are no members"
        return self._requests.reply(self.run, member, message, vector, now=now)

    def _hello(self, peer: PeerId, hello: messages.Hello, *, key: str, now: float) -> list[Effect]:
        if self.first_shard.is_followed and not hello.first_shard:
            return [Send(peer, welcome(hello, self.lineage, lease_seconds=self.membership.lease_seconds))]
        run = run_for(hello, self.run, self.lineage, overrides=self._overrides)
        if run is not self.run:
            self.run = run
            self.pushes.begin(run)
        return self._admission.join(run, peer, hello, key=key, now=now)

    def status(self, *, now: float) -> Status:
        """The state of the run; an immutable value that any thread may have."""
        return status_of(
            self.run,
            self.membership.all(),
            phase=self.phase.value,
            shard=self.lineage.shard,
            run_id=self.lineage.run_id,
            epoch=self.epoch,
            ending=self.ending.reason,
            failed=self.ending.failed,
            refused=dict(self.refusals.counts),
            not_modified=self.pushes.not_modified,
            checkpoint_version=self.checkpoints.saved_version,
            checkpoint_age_seconds=None if self.checkpoints.saved_at is None else now - self.checkpoints.saved_at,
            checkpoint_failures=self.checkpoints.failures,
            checkpoint_error=self.checkpoints.error,
            checkpoint_seconds=self.checkpoints.every_seconds,
            standby=self.replication.status(now=now),
            **self.process,
            now=now,
        )

    def _keep_time(self, *, now: float) -> list[Effect]:
        """Minutes count while the weights have a worker and nobody holds the run; a warning after long without any."""
        is_held = self.run is not None and self.run.adjustments.stands_still
        if self.run is not None:
            has_worker = self.phase is Phase.SERVING and self.membership.count_alive() > 0
            self.run.progress.count_minutes(has_worker and not is_held, now=now)
        waits = self.membership.is_newly_alone(now=now) and self.ending.phase is None and not is_held
        return [LogLine(ALONE, warning=True)] if waits else []

    def _end_if_over(self, *, now: float) -> list[Effect]:
        reason = self.first_shard.end_reason(self.run, now=now)
        return self._end(reason, failed=self.first_shard.another_failed, now=now) if reason else []

    def _end(self, reason: str, *, failed: bool, now: float) -> list[Effect]:
        """The run is over: send STOP, save, and exit when the workers have left."""
        ends = self.ending.drain(reason, failed=failed, uninformed=self.first_shard.uninformed, now=now)
        return [*ends, *self.save(now=now)] if ends else []

    def leave(self, *, now: float) -> list[Effect]:
        """The process is asked to leave. After Exit the shell saves the run, unless the standby has it."""
        return self.ending.leave(now=now)

    def fence(self, address: str, *, epoch: int, now: float) -> list[Effect]:
        """Another server serves the run in this later epoch, at `address` if known. This one saves nothing more."""
        assert self.run is not None, "a server without a run has no standby that could take over"
        return self.ending.fence(self.run, address, epoch=epoch, now=now)
