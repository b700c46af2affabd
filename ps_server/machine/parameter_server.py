"""
The parameter server as a machine: messages in, effects out.

dispatch.py has which requests are legal, and who answers each. The path of a push is in push_pipeline.py, the end of
the server in ending.py. No file here knows sockets, files or clocks: the shell (zmq_server.py) passes `now`.
"""

from collections.abc import Sequence

from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.messages import RunReply, ToServer, ToWorker
from ps_common.protocol.record import Record
from ps_common.protocol.wire import Buffer
from ps_server.machine.dispatch import reply
from ps_server.machine.ending import Phase
from ps_server.machine.membership import ALONE
from ps_server.machine.operator_requests import adopt_settings
from ps_server.machine.parts import ANYBODY, Parts, Request, Sender
from ps_server.state.effects import Effect, LogLine, PeerId, ReloadCheckpoint
from ps_server.state.guards import Denied
from ps_server.state.rollback import NOTHING_TO_GO_BACK_TO


class ParameterServer(Parts):
    """The server of one run in one epoch: the calls of the shell."""

    def __repr__(self) -> str:
        return f"<ParameterServer {self.phase.value} version={self.version} workers={self.membership.count_alive()}>"

    def receive(
        self, peer: PeerId, message: ToServer, vector: Sequence[Buffer] = (), *, now: float, sender: Sender = ANYBODY
    ) -> list[Effect]:
        """One message of a peer, and the buffers of its vector. No message raises; an illegal one is refused."""
        member = self.membership.heard_from(peer, now=now)
        try:
            request = Request(peer, message, vector, member, sender.key, now)
            effects = [*reply(self, request, sender), *self._keep_time(now=now), *self._replicate(now=now)]
        except Denied as denied:
            return self.refusals.refuse(peer, denied.code, str(denied), message.request)
        return effects + self._end_if_over(now=now)

    def receive_from_first_shard(self, message: ToWorker, *, now: float) -> list[Effect]:
        """A message of shard 1, or of its standby, to this other shard."""
        if not isinstance(message, RunReply):
            return []
        if self.ending.phase is None:
            return adopt_settings(self, message, now=now) + self._replicate(now=now) + self._end_if_over(now=now)
        if message.state is not None and message.state.ending:
            self.ending.informed(1)
        return []

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
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
            self.checkpoints.mark_durable(self.run.ledger)
            effects += self.pushes.settle_ready(now=now)
        effects += [*self.pushes.grant_credit(now=now), *self._replicate(now=now), *self._end_if_over(now=now)]
        if self.run is not None and self.phase not in (Phase.HANDING_OVER, Phase.FENCED):
            effects += self.pushes.watch_weights()
            if not any(isinstance(effect, ReloadCheckpoint) for effect in effects):  # else there is nothing to save
                effects += self.checkpoints.tick(self.run, now=now)
        return effects + self.ending.tick(now=now) + self.subscriptions.tick(self.status, now=now)

    def logged(self, line: LogLine, *, now: float) -> list[Effect]:
        """A line is in the log; now it becomes an event, for subscribers and the run's records."""
        return self.subscriptions.add(line, self.run, now=now)

    @property
    def has_unsaved(self) -> bool:
        """Whether the run has a change that the newest checkpoint lacks."""
        return self.run is not None and self.checkpoints.lacks(self.run)

    @property
    def lacks_last_checkpoint(self) -> bool:
        """Whether the run has weights, and its newest checkpoint is not that of a server that ends."""
        return self.has_unsaved or (self.version > 0 and not self.checkpoints.saved.is_last)

    def checkpoint_saved(self, path: str) -> list[Effect]:
        return self.checkpoints.completed(self.decided, path)

    def checkpoint_failed(self, reason: str) -> list[Effect]:
        return self.checkpoints.failed(self.decided, reason)

    def reloaded(self, checkpoint: str, vectors: dict[str, Tensor], record: Record, *, now: float) -> list[Effect]:
        """The newest verified checkpoint, of this name, was read: the run continues with it."""
        try:
            return self.checkpoints.roll_back(self.decided, checkpoint, vectors, record)
        except CheckpointError as error:
            return self.end(str(error), failed=True, now=now)

    def reload_failed(self, reason: str, *, now: float) -> list[Effect]:
        return self.end(NOTHING_TO_GO_BACK_TO + reason, failed=True, now=now)

    def leave(self, *, now: float) -> list[Effect]:
        """The process is asked to leave. After Exit the shell saves the run, unless the standby has it."""
        return self.ending.leave(self.run, now=now) + self._replicate(now=now)

    def _replicate(self, *, now: float) -> list[Effect]:
        return self.replication.send_changes(self.run.log, now=now) if self.run is not None else []

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
        return self.end(reason, failed=self.first_shard.another_failed, now=now) if reason else []
