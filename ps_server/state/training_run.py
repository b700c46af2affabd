"""
One run: its specification, weights, ledger and progress, which are what a checkpoint keeps.

This file decides what a push does. It knows nothing of connections and messages in flight.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.messages import Code, Evaluation, Opened, Push, Report, RunReply, RunState, Settlement, Verdict
from ps_common.protocol.names import MOST, module_of
from ps_common.protocol.record import WEIGHTS, Account, Record
from ps_common.protocol.status import Adjustment
from ps_common.protocol.tensors import Schema, all_moved
from ps_common.protocol.wire import Buffer
from ps_common.release import release
from ps_common.settings.run_settings import run_for_peers, run_from_dict
from ps_common.settings.run_spec import ActionValuesSettings, CustomAlgorithmSettings, RunSpec
from ps_server.state.adjustments import NO_ADJUSTMENTS, adjustments_for, applied
from ps_server.state.change_log import ChangeLog
from ps_server.state.effects import RecordEvaluation, RecordReport
from ps_server.state.guards import Accepted, Denied, Discarded, check_steps, gradient_of
from ps_server.state.ledger import Ledger
from ps_server.state.optimizers import Optimizer, mean
from ps_server.state.progress import MeterNames, Progress
from ps_server.state.weight_store import WeightStore

PUSH_WINDOW = 64  # how far a push may be beyond its worker's oldest unsettled one


class TrainingRun:
    """
    The state of a run in one epoch of the server.

    Invariants: each push is applied at most once; T grows in the same step; `version` and ledger of a record are of the
    same instant. Each change is an entry of `log`, and a copy of the run that replays the entries is the same run.
    """

    def __init__(self, spec: RunSpec, lineage: Lineage) -> None:
        self.spec, self.lineage = spec, lineage
        self.log = ChangeLog()
        # The run id of shard 1: which shards belong together. The others learn it from shard 1.
        self.first_shard = lineage.run_id if lineage.shard.number == 1 else ""
        every = spec.records.evaluate_every
        self.ledger = Ledger(PUSH_WINDOW)
        self.progress = Progress(evaluate_every=every, has_candidates=every > 0 and lineage.shard.of == 1)
        self._meters = MeterNames()
        self.adjustments = NO_ADJUSTMENTS
        self.store: WeightStore | None = None
        # Hashes of the modules of custom parts: the first worker that states one decides, others must have the same.
        self.code: dict[str, Code] = {}
        self.standby = ""  # HOST:PORT of the newest standby of this server
        self.primary = ""  # HOST:PORT of the server that this one replaced
        self.duplicates = 0
        # Whether processes may live that joined after the newest checkpoint; whether the standby followed at that.
        self.may_lack_workers = self.was_followed = False
        self.recalls = 0  # how often the run went back to a checkpoint in this epoch

    @classmethod
    def restored(cls, vectors: dict[str, Tensor], record: Record, *, now: float) -> "TrainingRun":
        """
        The run of a checkpoint, in the epoch of that checkpoint.

        Raises SettingsError or CheckpointError when this program cannot have these settings, or vectors.
        """
        run = cls(run_from_dict(record.run, source="checkpoint"), record.lineage)
        run.first_shard = record.first_shard
        run._begin_with(record.own_schema(), vectors[WEIGHTS])
        run.standby, run.primary = record.standby, record.primary
        run.may_lack_workers, run.was_followed = not record.is_last, record.is_followed
        run.weights.restore(vectors, version=record.version, target_version=record.target_version)
        run.ledger.restore(record.ledger, superseded=record.superseded)
        run.code, run.adjustments = dict(record.code), record.adjustments
        run.progress.restore(record.progress)
        run.progress.judge(run.spec.budget, now=now)  # checkpoints of before do not say when it was reached
        return run

    def record(self, *, now: float) -> Record:
        return Record(
            release=release(),
            lineage=self.lineage,
            first_shard=self.first_shard,
            standby=self.standby,
            primary=self.primary,
            version=self.weights.version,
            target_version=self.weights.target_version,
            run=run_for_peers(self.spec),
            schema=self.weights.schema.specs,
            ledger=self.ledger.record(),
            superseded=self.ledger.superseded,
            progress=self.progress.record(now=now),
            adjustments=self.adjustments,
            code=self.code.copy(),
        )

    @property
    def epoch(self) -> int:
        return self.lineage.epoch

    @property
    def shard(self) -> Shard:
        return self.lineage.shard

    @property
    def weights(self) -> WeightStore:
        assert self.store is not None, "the run is not seeded yet; the server's phases refuse such messages"
        return self.store

    @property
    def learning_rate(self) -> float:
        return self.spec.schedule.learning_rate_at(self.progress.global_steps)

    def seed(self, schema: Schema, weights: Tensor) -> None:
        """Begin with these weights [P]. Raises SettingsError for a block's settings that the optimizer cannot have."""
        self._begin_with(schema, weights)
        self.log.skip()

    def _begin_with(self, schema: Schema, weights: Tensor) -> None:
        optimizer = Optimizer(self.spec.optimizer, schema)
        self.store = WeightStore(schema, weights, optimizer, has_target=self._target_interval > 0)

    def join(self, worker_id: str, opened: Opened) -> Account:
        modules = {module_of(part) for part in self.spec.parts}
        self.code = {module: code for module, code in opened.code.items() if module in modules} | self.code
        account = self.ledger.open(worker_id, opened)
        # A standby lacks the accounts that were forgotten before its state: it would count other numbers.
        self.log.append(replace(opened, number=account.number), worker_id=worker_id)
        return account

    def is_new(self, worker_id: str, push: Push) -> bool:
        """Whether this push is not settled yet. Raises Denied when it comes too early: outside the window."""
        self.ledger.settle_below(worker_id, push.oldest)
        standing = self.ledger.judge(worker_id, push.sequence)
        if standing == "outside window":
            raise Denied("outside_window", f"push {push.sequence} is too far beyond the oldest unsettled one")
        return standing == "new"

    def settled_before(self, worker_id: str, push: Push) -> Settlement:
        self.duplicates += 1
        return self._settlement(worker_id, push, None)

    def settle(self, pushes: Sequence[tuple[str, Push, Sequence[Buffer]]]) -> list[Settlement]:
        """
        Apply new pushes, of (worker id, push, vector), as one update: the mean of their gradients. Pushes that count
        steps alone have no part in it, and without any gradient there is no update.

        Statistics are summed instead. A push that fails a check is discarded, with a reason.
        """
        judged = [self._judge(*one) for one in pushes]
        if accepted := [one for one in judged if isinstance(one, Accepted)]:
            self._apply(accepted)
        for (worker, push, vector), one in zip(pushes, judged, strict=True):
            kept = () if isinstance(one, Discarded) else vector  # nobody needs it to discard the push
            self.log.append(push, worker_id=worker, vector=kept, more_in_group=push is not pushes[-1][1])
        return [self._settlement(worker, push, one) for (worker, push, _), one in zip(pushes, judged, strict=True)]

    def _judge(self, worker_id: str, push: Push, vector: Sequence[Buffer]) -> Accepted | Discarded:
        """Settle a push, and decide whether it is applied."""
        self.ledger.settle(worker_id, push.sequence)
        account = self.ledger.accounts[worker_id]
        # Versions of different epochs cannot be compared: a push from an earlier epoch counts as fresh.
        staleness = max(0, self.weights.version - push.computed_on) if push.epoch == self.epoch else 0
        try:
            before = self.progress.global_steps
            check_steps(push.steps, before=before, environments=account.environments, run=self.spec)
            # Even if the push is discarded: its steps were played.
            self.ledger.change(worker_id, unplayed=min(account.unplayed + push.steps, MOST))
            gradient, norm = gradient_of(push, vector, self.weights.schema)
            return Accepted(staleness, push.steps, gradient, norm, push.blocks)
        except Denied as denied:
            return Discarded(staleness, denied)

    def _apply(self, accepted: Sequence[Accepted]) -> None:
        steps_before = self.progress.global_steps
        steps = sum(one.steps for one in accepted)
        gradients = [(one.gradient, one.blocks) for one in accepted if one.gradient is not None]
        if gradients:
            alone = (gradients[0][0], accepted[0].norm) if len(accepted) == 1 else None
            whole, norm = alone or mean(gradients, self.weights.schema)
            self.weights.apply(whole, self.learning_rate, all_moved([blocks for _, blocks in gradients]))
            staleness = max(one.staleness for one in accepted if one.gradient is not None)
            self.progress.update_applied(steps=steps, staleness=staleness, gradient_norm=norm)
        else:
            self.progress.global_steps += steps
        # θ⁻ ← θ when T has passed a multiple of the interval, once however many it has passed.
        interval = self._target_interval
        if interval and self.progress.global_steps // interval > steps_before // interval:
            self.weights.refresh_target()

    @property
    def _target_interval(self) -> int:
        """Steps between two refreshes of θ⁻; 0 where θ⁻ is θ."""
        settings = self.spec.algorithm
        return settings.target_interval if isinstance(settings, ActionValuesSettings | CustomAlgorithmSettings) else 0

    def roll_back(self, vectors: dict[str, Tensor], record: Record) -> None:
        """
        Restore weights and optimizer from a checkpoint of this run, as a new version. T, scores and ledger stay.

        Raises CheckpointError when the checkpoint is of another network.
        """
        if record.own_schema() != self.weights.schema:
            raise CheckpointError("the newest checkpoint is of another network")
        version = self.weights.version + 1
        self.weights.restore(vectors, version=version, target_version=version)
        self.recalls += 1
        self.log.skip()

    def count_report(self, worker_id: str, report: Report, *, now: float) -> RecordReport | None:
        """Count a report that is believed. What to record of it; None when it was counted before."""
        account = self.ledger.accounts[worker_id]
        if report.sequence <= account.reported:
            return None
        unplayed = account.unplayed - sum(episode.length for episode in report.episodes)
        self.ledger.change(worker_id, reported=report.sequence, unplayed=unplayed)
        for episode in report.episodes:
            self.progress.episode_finished(episode, self.spec.budget, now=now)
        self.log.append(report, worker_id=worker_id)
        return RecordReport(
            worker_id=worker_id,
            global_steps=self.progress.global_steps,
            updates=self.progress.updates,
            minutes=self.progress.minutes(now=now),
            first_episode=self.progress.episodes - len(report.episodes) + 1,
            episodes=report.episodes,
            meters=self._meters.known(report.meters),
        )

    def count_evaluation(self, evaluation: Evaluation, *, now: float) -> RecordEvaluation | None:
        """Count an evaluation. What to record of it; None when these weights, or newer ones, have one already."""
        if evaluation.version <= self.progress.evaluated:
            return None
        self.progress.count_evaluation(evaluation, self.spec.budget, now=now)
        self.log.append(evaluation)
        return RecordEvaluation(evaluation, self.progress.episodes, best=self.progress.save_candidate())

    def adjust(
        self, settings: Mapping[str, Any], *, by: str, checkpoint_seconds: float, now: float
    ) -> tuple[Adjustment, ...]:
        """
        Change settings while the run runs: all of them, or none. Settings that have their value already are left out.

        `checkpoint_seconds` is how often checkpoints are written now. Raises Denied that names the setting.
        """
        parts = self.spec, self.progress, self.adjustments
        adjustments = adjustments_for(settings, *parts, by=by, checkpoint_seconds=checkpoint_seconds, now=now)
        if adjustments:
            self.make_adjustments(adjustments)
        return tuple(adjustments)

    def make_adjustments(self, adjustments: Sequence[Adjustment]) -> None:
        """Change what these change: at a standby, what they have changed at the primary."""
        for adjustment in adjustments:
            self.adjustments, self.spec = applied(self.adjustments, adjustment, self.spec)
        self.log.append(messages.Adjusted(request=0, adjustments=tuple(adjustments)))

    def adopt_settings(self, reply: RunReply, state: RunState, *, now: float) -> bool:
        """Adopt the settings of shard 1 with all that was adjusted there; whether that changes anything."""
        before = self.first_shard, self.spec, self.adjustments
        had_target = self._target_interval > 0
        self.first_shard = state.first_shard
        self.spec = run_from_dict(reply.run, source="shard 1")
        self.adjustments = state.adjustments
        if self.spec.budget.until_return != before[1].budget.until_return:
            self.progress.target_changed(self.spec.budget, now=now)
        changed = self.spec.optimizer != before[1].optimizer or had_target != (self._target_interval > 0)
        if self.store is not None and changed:
            kept = self.store
            self._begin_with(kept.schema, kept.flat)
            self.weights.restore(kept.vectors(), version=kept.version, target_version=kept.target_version)
        if (self.first_shard, self.spec, self.adjustments) == before:
            return False
        self.log.append(reply)
        return True

    def end_reason(self, *, now: float) -> str:
        """Why the run is over by the counts of this server; "" while it is not. Minutes are those of shard 1 alone."""
        budget = self.spec.budget
        return self.progress.end_of(budget if self.shard.number == 1 else replace(budget, max_minutes=0), now=now)

    def _settlement(self, worker_id: str, push: Push, judged: Accepted | Discarded | None) -> Settlement:
        denied = judged.reason if isinstance(judged, Discarded) else None
        verdict: Verdict = "duplicate" if judged is None else "discarded" if denied else "applied"
        return Settlement(
            sequence=push.sequence,
            verdict=verdict,
            version=self.weights.version,
            staleness=judged.staleness if judged else 0,
            durable=self.ledger.accounts[worker_id].durable,
            code=denied.code if denied else "",
            reason=str(denied) if denied else "",
        )
