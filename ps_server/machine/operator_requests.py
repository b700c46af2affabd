"""
The requests of people who watch and steer a run: STATUS_REQUEST, SUBSCRIBE, WATCH, ADJUST and CHECKPOINT_REQUEST; of
those who evaluate it: EVALUATION; and
RUN_REQUEST, by which workers and other shards learn what was adjusted; and those of a standby.

An adjustment is in the next checkpoint, at the standby, and in the log. ps_server/state/adjustments.py has the settings
that a run lets change, and the effect of each.
"""

from dataclasses import dataclass, field

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import (
    Adjust,
    Adjusted,
    CheckpointRequest,
    Evaluated,
    Evaluation,
    Follow,
    Followed,
    Promote,
    Promoted,
    RunReply,
    RunRequest,
    StatusRequest,
    Subscribe,
    Watch,
)
from ps_common.protocol.names import check_address
from ps_common.protocol.status import Adjustment
from ps_common.settings.kinds import text_of
from ps_server.machine.allowances import LIMITS
from ps_server.machine.checkpoint_schedule import CheckpointSchedule, Saving
from ps_server.machine.membership import Membership
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.machine.status_report import SharedStatus, status_reply
from ps_server.machine.subscriptions import Subscriptions, Watchers
from ps_server.replication.first_shard import FirstShard, run_reply
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, KeepCandidate, LogLine, PeerId, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

KEY_DIGITS = 8  # the history shows so many digits of an admin's key


OperatorRequest = StatusRequest | RunRequest | Subscribe | Watch | Adjust | Evaluation | CheckpointRequest | Promote


@dataclass(frozen=True)
class OperatorRequests:
    """One server's replies to operators, and what it sends to those who subscribe."""

    membership: Membership
    pushes: PushPipeline
    replication: Replication
    checkpoints: CheckpointSchedule
    saving: Saving
    status: SharedStatus
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    watchers: Watchers = field(default_factory=Watchers)

    def reply(
        self, run: TrainingRun | None, peer: PeerId, message: OperatorRequest, lineage: Lineage, *, key: str, now: float
    ) -> list[Effect]:
        """The reply; that to CHECKPOINT_REQUEST comes when it is on disk. `key` is the sender's. Raises Denied."""
        match message:
            case StatusRequest():
                if not self.membership.allowances.allow(peer, "status", now=now):
                    most = LIMITS["status"][1]
                    raise Denied("too_often", f"more than {most:g} statuses a second are not sent; SUBSCRIBE has one")
                return [status_reply(peer, message, run, self.status(now=now))]
            case RunRequest():
                return [Send(peer, run_reply(message, run, lineage))]
            case Subscribe():
                return self.subscriptions.subscribe(peer, message, epoch=lineage.epoch, now=now)
            case Watch(worker_id=worker_id):
                return self.watchers.watch(peer, message, self.membership.living(worker_id), now=now)
            case Adjust():
                return self._adjust(run, peer, message, key=key, now=now)
            case Evaluation():
                return self._evaluate(run, peer, message, now=now)
            case CheckpointRequest():
                return self.saving.ask(run, peer, message.request, now=now)
            case Promote(request=request):
                version = run.weights.version if run is not None and run.store is not None else 0
                lost = "nothing is lost: this server serves the run already"
                return [Send(peer, Promoted(request=request, epoch=lineage.epoch, version=version, lost=lost))]

    def _adjust(self, run: TrainingRun | None, peer: PeerId, adjust: Adjust, *, key: str, now: float) -> list[Effect]:
        """Change all of these settings, or raise Denied that names the first bad one."""
        if run is None:
            raise Denied("no_weights", "there is nothing to adjust yet: no worker has joined")
        by = " ".join(filter(None, [adjust.by or "an admin", f"(key {key[:KEY_DIGITS]}...)" if key else ""]))
        every = self.checkpoints.every_seconds
        adjustments = run.adjust(adjust.settings, by=by[:200], checkpoint_seconds=every, now=now)
        effects: list[Effect] = [Send(peer, Adjusted(request=adjust.request, adjustments=adjustments))]
        if not adjustments:
            return effects
        effects += [LogLine(_sentence(one), kind="adjustment") for one in adjustments]
        return effects + self._changed(run, Adjusted(request=0, adjustments=adjustments), now=now)

    def _evaluate(self, run: TrainingRun | None, peer: PeerId, evaluation: Evaluation, *, now: float) -> list[Effect]:
        """Count an evaluation, or raise Denied."""
        assert run is not None, "it is legal once there are weights"
        if not run.lineage.is_of(evaluation.run_id) or evaluation.version > run.weights.version:
            what = f"version {evaluation.version} of run {evaluation.run_id}"
            raise Denied(
                "other_run", f"this server has run {run.lineage.run_id}, and no {what} came before its weights"
            )
        record = run.count_evaluation(evaluation, now=now)
        best = record is not None and record.best
        reply = Send(peer, Evaluated(request=evaluation.request, counted=record is not None, best=best))
        if record is None:
            return [reply]
        kept: list[Effect] = [KeepCandidate()] if best else []
        games = "a game" if evaluation.games == 1 else f"{evaluation.games} games"
        line = f"step {evaluation.global_steps}: mean return {evaluation.mean_return:.2f} in {games} of evaluation"
        line += ", the best so far" if best else ""
        return [reply, record, *kept, LogLine(line), *self.replication.forward("", evaluation, now=now)]

    def reply_to_standby(
        self, run: TrainingRun, peer: PeerId, message: Follow | Followed, *, now: float
    ) -> list[Effect]:
        """The reply to FOLLOW, or to FOLLOWED. Raises Denied."""
        if isinstance(message, Followed):
            effects = self.replication.acknowledge(peer, message, run, now=now)
            self.checkpoints.release(run.ledger, followed=self.replication.followed)
            return effects
        try:
            check_address("FOLLOW of", message.address)  # a checkpoint keeps it
        except SettingsError as error:
            raise Denied("bad_address", str(error)) from error
        if not run.lineage.is_of(message.run_id):
            held = f"the standby {message.address} holds run {message.run_id}"
            raise Denied("other_run", f"this server has run {run.lineage.run_id}, and {held}")
        effects = self.replication.follow(peer, message, run, now=now)
        if run.standby != message.address or not run.was_followed:
            run.standby = message.address
            self.checkpoints.hurry()  # a restarted server asks the standby first whether it serves the run now
        return effects

    def follow(
        self, first_shard: FirstShard, run: TrainingRun | None, lineage: Lineage, reply: RunReply, *, now: float
    ) -> tuple[TrainingRun | None, list[Effect]]:
        """The run with the settings of shard 1, which has sent this reply."""
        rule = run.spec.consistency if run else None
        run, is_changed, effects = first_shard.follow(run, lineage, reply, now=now)
        if run is None or not is_changed:
            return run, effects
        if run.spec.consistency != rule:
            self.pushes.begin(run)
        return run, effects + self._changed(run, reply, now=now)

    def _changed(self, run: TrainingRun, message: Adjusted | RunReply, *, now: float) -> list[Effect]:
        """The settings of the run have changed, as this message tells its standby."""
        if run.adjustments.checkpoint_seconds is not None:
            self.checkpoints.change_interval(run.adjustments.checkpoint_seconds, now=now)
        self.checkpoints.hurry()
        return [*self.replication.forward("", message, now=now), *self.pushes.settle_ready(now=now)]


def _sentence(adjustment: Adjustment) -> str:
    change = f"from {text_of(adjustment.before)} to {text_of(adjustment.after)}"
    return f"{adjustment.by} has set {adjustment.setting} {change}"
