"""
The requests of the members of a run: SEED, PUSH, CREDIT_REQUEST, HEARTBEAT, REPORT, FRAME and GOODBYE.

parameter_server.py has admitted the member and found the request legal. Pushes go on to push_pipeline.py.
"""

from collections.abc import Sequence

from ps_common.protocol.messages import (
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
)
from ps_common.protocol.wire import Buffer
from ps_server.machine.checkpoint_schedule import CheckpointSchedule, Saving
from ps_server.machine.effects import Effect, Note, Send
from ps_server.machine.membership import REPORTS_PER_SECOND, Member, Membership
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.machine.replies import FirstReporter, alive, count_report
from ps_server.machine.subscriptions import forwarded
from ps_server.replication.replication import Replication
from ps_server.state.guards import Denied, seed_of
from ps_server.state.training_run import TrainingRun

WorkerRequest = Seed | Push | CreditRequest | Heartbeat | Report | Frame | Goodbye


class WorkerRequests:
    """One server's replies to its members."""

    def __init__(
        self,
        membership: Membership,
        pushes: PushPipeline,
        replication: Replication,
        checkpoints: CheckpointSchedule,
        saving: Saving,
    ) -> None:
        self._membership = membership
        self._pushes = pushes
        self._replication = replication
        self._checkpoints = checkpoints
        self._saving = saving
        self._first_reporter = FirstReporter()

    def reply(
        self, run: TrainingRun, member: Member, request: WorkerRequest, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        """The reply, now or once the gate lets a push through. Raises Denied."""
        match request:
            case Seed():
                return self._seed(run, member, request, vector, now=now)
            case Push():
                moves = self._mark_stalled(member, False)
                return [*moves, *self._pushes.receive(member, request, vector, now=now)]
            case CreditRequest():
                return self._pushes.ask_for_credit(member, request, now=now)
            case Heartbeat():
                return self._heartbeat(run, member, request, now=now)
            case Report():
                return self._report(run, member, request, now=now)
            case Frame():
                return forwarded(member, request, now=now)
            case Goodbye(reason=reason):
                self._membership.leave(member)
                why = f": {reason}" if reason else ""
                farewell = Send(member.peer, Farewell(request=request.request))
                return [
                    farewell,
                    Note(f"{member.worker_id} left{why}", worker_id=member.worker_id),
                    *self._pushes.settle_ready(now=now),
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
        run.seed(schema, weights)
        seeded = Seeded(request=seed.request, accepted=True, version=run.weights.version)
        note = Note(f"seeded with {len(schema.specs)} tensors, {schema.size} parameters")
        # Saved at once: from the first checkpoint on, a killed server has something to come back with.
        return [Send(member.peer, seeded), note, *self._saving.begin(run, now=now)]

    def _heartbeat(self, run: TrainingRun, member: Member, heartbeat: Heartbeat, *, now: float) -> list[Effect]:
        """A worker whose resend buffer fills up hurries the next checkpoint, and a standby that lags is dropped."""
        account = run.ledger.accounts[member.worker_id]
        effects: list[Effect] = []
        if heartbeat.save_soon:
            self._checkpoints.hurry_for(member.worker_id, account)
            if self._checkpoints.waits_for_standby:
                effects = self._replication.worker_waits(member.worker_id, now=now)
        waiting, credit = self._pushes.waits(member), self._pushes.credit()
        saving, watched = not self._checkpoints.failing, bool(member.watched_by(now=now))
        reply = alive(heartbeat, run, account, waiting=waiting, credit=credit, saving=saving, watched=watched)
        return [Send(member.peer, reply), *effects, *self._mark_stalled(member, heartbeat.stalled)]

    def _mark_stalled(self, member: Member, stalled: bool) -> list[Effect]:
        """A stalled trainer keeps no push of another waiting; those that waited are settled at the next tick."""
        if member.stalled == stalled:
            return []
        member.stalled = stalled
        now_what = "has made no step for much longer than ever before; nobody waits for it" if stalled else "goes on"
        return [Note(f"{member.worker_id} {now_what}", warning=stalled, worker_id=member.worker_id)]

    def _report(self, run: TrainingRun, member: Member, report: Report, *, now: float) -> list[Effect]:
        worker = member.worker_id
        if report.sequence > run.ledger.accounts[worker].reported:
            if not member.reports.allows(now=now):
                raise Denied("too_often", f"more than {REPORTS_PER_SECOND:g} reports a second are not counted")
            run.check_report(worker, report, unsettled=self._pushes.gate.steps_of(worker))
        is_first = self._first_reporter.is_first(member.number, now=now)
        noted = Noted(request=report.request, sequence=report.sequence, first=is_first)
        effects: list[Effect] = [Send(member.peer, noted)]
        reported = count_report(run, worker, report, is_first=is_first, now=now)
        if reported is not None:
            member.meters = reported.meters
            effects += [reported, *self._replication.forward(worker, report, now=now)]
        return effects
