"""
The requests of people who watch and steer a run: STATUS_REQUEST, SUBSCRIBE, WATCH, ADJUST, CHECKPOINT_REQUEST and
STOP_REQUEST; EVALUATION of those who evaluate it; and RUN_REQUEST, by which workers and other shards learn what was
adjusted. Those of the other server of a pair: FOLLOW and FOLLOWED of a standby, FENCE of one that was promoted, and
PROMOTE, which comes too late here.

An adjustment is in the next checkpoint, at the standby, and in the log. ps_server/state/adjustments.py has the settings
that a run lets change, and the effect of each.
"""

from ps_common.errors import SettingsError
from ps_common.protocol import messages
from ps_common.protocol.messages import Adjusted, Evaluated, Promoted, RunReply, Stopping, ToServer
from ps_common.protocol.names import check_address
from ps_common.protocol.status import Adjustment
from ps_common.settings.kinds import text_of
from ps_server.machine.allowances import LIMITS
from ps_server.machine.ending import Phase
from ps_server.machine.parts import Parts, Request
from ps_server.machine.status_report import status_reply
from ps_server.replication.first_shard import run_reply
from ps_server.replication.replication import leading
from ps_server.state.effects import Effect, KeepCandidate, LogLine, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

KEY_DIGITS = 8  # of an admin's key, in the history


def status_request(parts: Parts, request: Request[messages.StatusRequest]) -> list[Effect]:
    if not parts.membership.allowances.allow(request.peer, "status", now=request.now):
        most = LIMITS["status"][1]
        raise Denied("too_often", f"more than {most:g} statuses a second are not sent; SUBSCRIBE has one")
    return [status_reply(request.peer, request.message, parts.run, parts.recent_status(now=request.now))]


def subscribe(parts: Parts, request: Request[messages.Subscribe]) -> list[Effect]:
    return parts.subscriptions.subscribe(request.peer, request.message, epoch=parts.epoch, now=request.now)


def watch(parts: Parts, request: Request[messages.Watch]) -> list[Effect]:
    """A lease, in which the frames of a worker's game are sent."""
    member = parts.membership.living(request.message.worker_id)
    return parts.watchers.watch(request.peer, request.message, member, now=request.now)


def run_request(parts: Parts, request: Request[messages.RunRequest]) -> list[Effect]:
    """The settings of this moment; another shard may say that the run is over."""
    parts.first_shard.hear(request.message, parts.run)
    return [Send(request.peer, run_reply(request.message, parts.run, parts.lineage))]


def adjust(parts: Parts, request: Request[messages.Adjust]) -> list[Effect]:
    """Change all of these settings, or raise Denied that names the first bad one."""
    run, message, key, now = parts.run, request.message, request.key, request.now
    if run is None:
        raise Denied("no_weights", "there is nothing to adjust yet: no worker has joined")
    by = " ".join(filter(None, [message.by or "an admin", f"(key {key[:KEY_DIGITS]}...)" if key else ""]))
    every = parts.checkpoints.every_seconds
    adjustments = run.adjust(message.settings, by=by[:200], checkpoint_seconds=every, now=now)
    effects: list[Effect] = [Send(request.peer, Adjusted(request=message.request, adjustments=adjustments))]
    if not adjustments:
        return effects
    effects += [LogLine(_sentence(one), kind="adjustment") for one in adjustments]
    return effects + _settings_changed(parts, run, now=now)


def evaluation(parts: Parts, request: Request[messages.Evaluation]) -> list[Effect]:
    run, message = parts.decided, request.message
    if not run.lineage.is_of(message.run_id) or message.version > run.weights.version:
        what = f"version {message.version} of run {message.run_id}"
        raise Denied("other_run", f"this server has run {run.lineage.run_id}, and no {what} came before its weights")
    record = run.count_evaluation(message, now=request.now)
    best = record is not None and record.best
    reply = Send(request.peer, Evaluated(request=message.request, counted=record is not None, best=best))
    if record is None:
        return [reply]
    kept: list[Effect] = [KeepCandidate()] if best else []
    games = "a game" if message.games == 1 else f"{message.games} games"
    line = f"step {message.global_steps}: mean return {message.mean_return:.2f} in {games} of evaluation"
    line += ", the best so far" if best else ""
    return [reply, record, *kept, LogLine(line)]


def checkpoint_request(parts: Parts, request: Request[messages.CheckpointRequest]) -> list[Effect]:
    """The reply comes when the checkpoint is on disk."""
    return parts.checkpoints.ask(parts.run, request.peer, request.message.request, now=request.now)


def stop_request(parts: Parts, request: Request[messages.StopRequest]) -> list[Effect]:
    message = request.message
    stopping = Send(request.peer, Stopping(request=message.request))
    return [stopping, *parts.end(message.reason, failed=message.failed, now=request.now)]


# -- of the other server of a pair -------------------------------------------------------------------------------------


def follow(parts: Parts, request: Request[messages.Follow]) -> list[Effect]:
    """A peer requests to be the standby: it is sent the run."""
    run, message = parts.decided, request.message
    try:
        check_address("FOLLOW of", message.address)  # a checkpoint keeps it
    except SettingsError as error:
        raise Denied("bad_address", str(error)) from error
    if not run.lineage.is_of(message.run_id):
        held = f"the standby {message.address} holds run {message.run_id}"
        raise Denied("other_run", f"this server has run {run.lineage.run_id}, and {held}")
    effects = parts.replication.follow(request.peer, message, run, now=request.now)
    if run.standby != message.address or not run.was_followed:
        run.standby = message.address
        parts.checkpoints.checkpoint_early()  # a restarted server asks the standby first whether it serves the run now
    return effects


def followed(parts: Parts, request: Request[messages.Followed]) -> list[Effect]:
    """The standby has everything up to a number: more may be durable."""
    run = parts.decided
    effects = parts.replication.acknowledge(request.peer, request.message, run, now=request.now)
    parts.checkpoints.mark_durable(run.ledger)
    return effects


def promote(parts: Parts, request: Request[messages.Promote]) -> list[Effect]:
    """This server is promoted already."""
    lost, version = "nothing is lost: this server serves the run already", parts.version
    number = request.message.request
    return [Send(request.peer, Promoted(request=number, epoch=parts.epoch, version=version, lost=lost))]


def fence(parts: Parts, request: Request[messages.Fence]) -> list[Effect]:
    """A FENCE that proves nothing is told who serves the run here; a server that has none gives way."""
    if not gives_way(parts, request.message):
        return [Send(request.peer, leading(request.message.request, parts.lineage))]
    peer, number, now = request.peer, request.message.request, request.now
    refusal = parts.refusals.refuse(peer, "fenced", "no run is begun here", number)
    return [*refusal, *parts.ending.give_way(request.message, now=now)]


def gives_way(parts: Parts, message: ToServer) -> bool:
    """Whether this is FENCE, and no run is begun here that would be lost."""
    is_unused = parts.phase is Phase.EMPTY and not parts.membership.count_alive()
    return is_unused and isinstance(message, messages.Fence)


def fenced(parts: Parts, request: Request[ToServer], message: messages.Hello | messages.Fence) -> list[Effect]:
    """This HELLO or FENCE proves that the run is served in a later epoch."""
    peer, now = request.peer, request.now
    refusal = parts.refusals.refuse(peer, "fenced", "a later epoch is served", message.request)
    address = message.address if isinstance(message, messages.Fence) else ""
    return [*refusal, *parts.fence(address, epoch=message.latest_epoch, now=now)]


# -- settings that have changed ----------------------------------------------------------------------------------------


def adopt_settings(parts: Parts, reply: RunReply, *, now: float) -> list[Effect]:
    """The run has the settings of shard 1, which has sent this reply to another shard."""
    rule = parts.run.spec.consistency if parts.run else None
    run, is_changed, effects = parts.first_shard.follow(parts.run, parts.lineage, reply, now=now)
    if run is None or not is_changed:
        return effects
    if run.spec.consistency != rule:
        parts.decide(run)
    return effects + _settings_changed(parts, run, now=now)


def _settings_changed(parts: Parts, run: TrainingRun, *, now: float) -> list[Effect]:
    if run.adjustments.checkpoint_seconds is not None:
        parts.checkpoints.change_interval(run.adjustments.checkpoint_seconds, now=now)
    parts.checkpoints.checkpoint_early()
    return parts.pushes.settle_ready(now=now)


def _sentence(adjustment: Adjustment) -> str:
    change = f"from {text_of(adjustment.before)} to {text_of(adjustment.after)}"
    return f"{adjustment.by} has set {adjustment.setting} {change}"
