"""
The requests of the members of a run: SEED, PUSH, CREDIT_REQUEST, HEARTBEAT, REPORT, FRAME and GOODBYE.

parameter_server.py has admitted the member and found the request legal. Pushes go on to push_pipeline.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ps_common.errors import SettingsError
from ps_common.protocol.messages import (
    Alive,
    CreditRequest,
    Farewell,
    Frame,
    Goodbye,
    Heartbeat,
    Noted,
    Push,
    Report,
    Seed,
    Seeded,
    WatchedFrame,
)
from ps_common.protocol.wire import Buffer
from ps_server.machine.allowances import LIMITS
from ps_server.machine.checkpoint_schedule import CheckpointSchedule, Saving
from ps_server.machine.membership import Member, Membership
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, LogLine, Send
from ps_server.state.guards import Denied, check_games, most_steps, seed_of
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun

WorkerRequest = Seed | Push | CreditRequest | Heartbeat | Report | Frame | Goodbye


@dataclass(frozen=True)
class WorkerRequests:
    """One server's replies to its members."""

    membership: Membership
    pushes: PushPipeline
    replication: Replication
    checkpoints: CheckpointSchedule
    saving: Saving
    start: StartingWeights | None

    def reply(
        self, run: TrainingRun, member: Member, request: WorkerRequest, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        """The reply, now or once the gate lets a push through. Raises Denied."""
        match request:
            case Seed():
                return self._seed(run, member, request, vector, now=now)
            case Push():
                moves, member.waits_elsewhere = self._mark_stalled(member, False), False
                return [*moves, *self.pushes.receive(member, request, vector, now=now)]
            case CreditRequest():
                return self.pushes.ask_for_credit(member, request, now=now)
            case Heartbeat():
                return self._heartbeat(run, member, request, now=now)
            case Report():
                return self._report(run, member, request, now=now)
            case Frame():
                return self._forward(member, request, now=now)
            case Goodbye(reason=reason, failed=failed):
                self.membership.leave(member)
                run.ledger.left(member.worker_id)
                why = f": {reason}" if reason else ""
                farewell = Send(member.peer, Farewell(request=request.request))
                return [
                    farewell,
                    LogLine(f"{member.worker_id} left{why}", warning=failed, worker_id=member.worker_id),
                    *self.pushes.settle_ready(now=now),
                ]

    def _seed(
        self, run: TrainingRun, member: Member, seed: Seed, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        """The first weights of a run are taken. Later ones are not needed, but must have the same schema."""
        schema, weights = seed_of(seed, vector, run.shard)
        if run.store is not None:
            if sentence := run.store.schema.difference(schema):
                raise Denied("schema_mismatch", f"this run trains another network: {sentence}")
            return [Send(member.peer, Seeded(request=seed.request, accepted=False, version=run.store.version))]
        lines: list[Effect] = []
        if run.spec.start_from:
            weights, sentence = self._start_of(run).for_run(schema, weights)
            lines.append(LogLine(sentence))
        try:
            run.seed(schema, weights)
        except SettingsError as error:
            raise Denied("bad_schema", str(error)) from error
        seeded = Seeded(request=seed.request, accepted=True, version=run.weights.version)
        lines.append(LogLine(f"seeded with {len(schema.specs)} tensors, {schema.size} parameters"))
        # Saved at once: from the first checkpoint on, a killed server has something to come back with.
        return [Send(member.peer, seeded), *lines, *self.saving.begin(run, now=now)]

    def _start_of(self, run: TrainingRun) -> StartingWeights:
        """The weights that the run starts from. Raises Denied on a shard that was started with others, or without."""
        place = run.spec.start_from
        if self.start is None or self.start.place != place:
            raise Denied("bad_run", f"{run.shard}: shard 1 has --start-from {place}; start this shard with it as well")
        return self.start

    def _heartbeat(self, run: TrainingRun, member: Member, heartbeat: Heartbeat, *, now: float) -> list[Effect]:
        """A worker whose resend buffer fills up hurries the next checkpoint, and a standby that lags is dropped."""
        account, member.waits_elsewhere = run.ledger.accounts[member.worker_id], heartbeat.waits_elsewhere
        effects: list[Effect] = []
        if heartbeat.save_soon:
            self.checkpoints.hurry_for(member.worker_id, account)
            if self.checkpoints.waits_for_standby:
                effects = self.replication.worker_waits(member.worker_id, now=now)
        alive = Alive(
            request=heartbeat.request,
            epoch=run.epoch,
            version=run.store.version if run.store else 0,
            global_steps=run.progress.global_steps,
            durable=account.durable,
            waiting=self.pushes.gate.waits(member.worker_id),
            credit=self.pushes.credit(),
            saving=not self.checkpoints.failing,
            settings_version=run.adjustments.version,
            watched=bool(member.watched_by(now=now)),
        )
        return [Send(member.peer, alive), *effects, *self._mark_stalled(member, heartbeat.stalled)]

    def _mark_stalled(self, member: Member, stalled: bool) -> list[Effect]:
        """A stalled trainer keeps no push of another waiting; those that waited are settled at the next tick."""
        if member.stalled == stalled:
            return []
        member.stalled = stalled
        now_what = "has made no step for much longer than ever before; nobody waits for it" if stalled else "goes on"
        return [LogLine(f"{member.worker_id} {now_what}", warning=stalled, worker_id=member.worker_id)]

    def _forward(self, member: Member, frame: Frame, *, now: float) -> list[Effect]:
        """A worker's frame for those who watch it. One that nobody watches, or that comes too soon, is dropped."""
        peers = member.watched_by(now=now)
        if not peers or not self.membership.allowances.allow(member.peer, "frame", now=now):
            return []
        watched = WatchedFrame(worker_id=member.worker_id, frame=frame)
        return [Send(peer, watched) for peer in peers]

    def _report(self, run: TrainingRun, member: Member, report: Report, *, now: float) -> list[Effect]:
        worker, account = member.worker_id, run.ledger.accounts[member.worker_id]
        if report.sequence > account.reported:
            if not self.membership.allowances.allow(member.peer, "report", now=now):
                raise Denied("too_often", f"more than {LIMITS['report'][1]:g} reports a second are not counted")
            most = most_steps(account.environments, run.spec)  # a push of more is discarded when it is settled
            waiting = sum(push.steps for push in self.pushes.gate.pushes_of(worker) if push.steps <= most)
            check_games(report.episodes, unplayed=account.unplayed + waiting)
        effects: list[Effect] = [Send(member.peer, Noted(request=report.request, sequence=report.sequence))]
        reported = run.count_report(worker, report, now=now)
        if reported is not None:
            member.meters = reported.meters
            effects += [reported, *self.replication.forward(worker, report, now=now)]
        return effects
