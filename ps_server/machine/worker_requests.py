"""
The requests of workers: SEED, PUSH, CREDIT_REQUEST, PULL, HEARTBEAT, REPORT, FRAME and GOODBYE.

dispatch.py has found each legal, and of a member where it has to be. Pushes go on to push_pipeline.py.
"""

from ps_common.errors import SettingsError
from ps_common.protocol import messages
from ps_common.protocol.messages import Alive, Farewell, Noted, Seeded, WatchedFrame
from ps_server.machine.allowances import LIMITS
from ps_server.machine.membership import Member
from ps_server.machine.parts import Parts, Request
from ps_server.state.effects import Effect, LogLine, Send
from ps_server.state.guards import Denied, check_games, most_steps, seed_of
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun


def seed(parts: Parts, request: Request[messages.Seed]) -> list[Effect]:
    """The first weights of a run are taken. Later ones are not needed, but must have the same schema."""
    run, number = parts.decided, request.message.request
    schema, weights = seed_of(request.message, request.vector, run.shard)
    if run.store is not None:
        if sentence := run.store.schema.difference(schema):
            raise Denied("schema_mismatch", f"this run trains another network: {sentence}")
        return [Send(request.peer, Seeded(request=number, accepted=False, version=run.store.version))]
    lines: list[Effect] = []
    if run.spec.start_from:
        weights, sentence = _start_of(run, parts.start).for_run(schema, weights)
        lines.append(LogLine(sentence))
    try:
        run.seed(schema, weights)
    except SettingsError as error:
        raise Denied("bad_schema", str(error)) from error
    seeded = Seeded(request=number, accepted=True, version=run.weights.version)
    lines.append(LogLine(f"seeded with {len(schema.specs)} tensors, {schema.size} parameters"))
    # Saved at once: from the first checkpoint on, a killed server has something to come back with.
    return [Send(request.peer, seeded), *lines, *parts.checkpoints.begin(run, now=request.now)]


def _start_of(run: TrainingRun, start: StartingWeights | None) -> StartingWeights:
    """The weights that the run starts from. Raises Denied on a shard that was started with others, or without."""
    place = run.spec.start_from
    if start is None or start.place != place:
        raise Denied("bad_run", f"{run.shard}: shard 1 has --start-from {place}; start this shard with it as well")
    return start


def push(parts: Parts, request: Request[messages.Push]) -> list[Effect]:
    """The reply comes now, or once the gate lets the push through."""
    member = request.worker
    moves, member.waits_elsewhere = _mark_stalled(member, False), False
    return [*moves, *parts.pushes.receive(member, request.message, request.vector, now=request.now)]


def credit_request(parts: Parts, request: Request[messages.CreditRequest]) -> list[Effect]:
    return parts.pushes.ask_for_credit(request.worker, request.message, now=request.now)


def pull(parts: Parts, request: Request[messages.Pull]) -> list[Effect]:
    return [parts.pushes.pull(request.peer, request.message, epoch=parts.epoch)]


def heartbeat(parts: Parts, request: Request[messages.Heartbeat]) -> list[Effect]:
    """A worker whose resend buffer fills up hurries the next checkpoint, and a standby that lags is dropped."""
    run, member, message = parts.decided, request.worker, request.message
    account, member.waits_elsewhere = run.ledger.accounts[member.worker_id], message.waits_elsewhere
    effects: list[Effect] = []
    if message.save_soon:
        parts.checkpoints.early_for(member.worker_id, account)
        if parts.checkpoints.waits_for_standby:
            effects = parts.replication.worker_waits(member.worker_id, now=request.now)
    alive = Alive(
        request=message.request,
        epoch=run.epoch,
        version=parts.version,
        global_steps=run.progress.global_steps,
        durable=account.durable,
        waiting=parts.pushes.gate.waits(member.worker_id),
        credit=parts.pushes.credit(),
        saving=not parts.checkpoints.failing,
        settings_version=run.adjustments.version,
        watched=bool(member.watched_by(now=request.now)),
    )
    return [Send(member.peer, alive), *effects, *_mark_stalled(member, message.stalled)]


def _mark_stalled(member: Member, stalled: bool) -> list[Effect]:
    """A stalled trainer keeps no push of another waiting; those that waited are settled at the next tick."""
    if member.stalled == stalled:
        return []
    member.stalled = stalled
    now_what = "has made no step for much longer than ever before; nobody waits for it" if stalled else "goes on"
    return [LogLine(f"{member.worker_id} {now_what}", warning=stalled, worker_id=member.worker_id)]


def report(parts: Parts, request: Request[messages.Report]) -> list[Effect]:
    run, member, message, now = parts.decided, request.worker, request.message, request.now
    worker, account = member.worker_id, run.ledger.accounts[member.worker_id]
    if message.sequence > account.reported:
        if not parts.membership.allowances.allow(member.peer, "report", now=now):
            raise Denied("too_often", f"more than {LIMITS['report'][1]:g} reports a second are not counted")
        most = most_steps(account.environments, run.spec)  # a push of more is discarded when it is settled
        waiting = sum(one.steps for one in parts.pushes.gate.pushes_of(worker) if one.steps <= most)
        check_games(message.episodes, unplayed=account.unplayed + waiting)
    effects: list[Effect] = [Send(member.peer, Noted(request=message.request, sequence=message.sequence))]
    reported = run.count_report(worker, message, now=now)
    if reported is not None:
        member.meters = reported.meters
        effects.append(reported)
    return effects


def frame(parts: Parts, request: Request[messages.Frame]) -> list[Effect]:
    """A frame of the worker's game, for those who watch it. One that comes too soon, or to nobody, is dropped."""
    member = request.worker
    peers = member.watched_by(now=request.now)
    if not peers or not parts.membership.allowances.allow(request.peer, "frame", now=request.now):
        return []
    watched = WatchedFrame(worker_id=member.worker_id, frame=request.message)
    return [Send(peer, watched) for peer in peers]


def goodbye(parts: Parts, request: Request[messages.Goodbye]) -> list[Effect]:
    """The lease of the worker ends, and nobody waits for it."""
    member, message = request.member, request.message
    farewell = Send(request.peer, Farewell(request=message.request))
    if member is None:
        return [farewell]
    parts.membership.leave(member)
    parts.decided.ledger.left(member.worker_id)
    why = f": {message.reason}" if message.reason else ""
    line = LogLine(f"{member.worker_id} left{why}", warning=message.failed, worker_id=member.worker_id)
    return [farewell, line, *parts.pushes.settle_ready(now=request.now)]
