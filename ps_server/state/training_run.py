"""
One run: its specification, its weights, what was applied to them, and how far it is. What a checkpoint keeps is this.

This file decides what a push does. It does not know who is connected, or how anything is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from common.errors import CheckpointError, SchemaMismatch
from common.protocol.messages import Opened, Push, Report, Settlement, Verdict
from common.protocol.tensors import Schema
from common.protocol.wire import Buffer
from common.schedules import linear
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import ActionValuesSettings, RunSpec
from ps_server.state.claims import check_games, check_steps
from ps_server.state.guards import Denied, gradient_of, is_sane
from ps_server.state.ledger import Account, Ledger
from ps_server.state.lineage import Lineage
from ps_server.state.optimizers import optimizer_for
from ps_server.state.progress import Progress
from ps_server.state.staleness import PastWeights, worth
from ps_server.state.weight_store import WeightStore

PUSH_WINDOW = 64  # a worker may have pushes up to this far beyond its oldest unsettled one


class TrainingRun:
    """
    The state of a run in one epoch of the server.

    Invariants: an update is made for each push at most once; T grows with it, in the same step; `version` and the
    ledger of a record are of the same instant.
    """

    def __init__(self, spec: RunSpec, lineage: Lineage, *, now: float) -> None:
        self.spec = spec
        self.lineage = lineage
        self.ledger = Ledger(PUSH_WINDOW)
        self.progress = Progress(now=now)
        self.store: WeightStore | None = None
        self.standby = ""  # HOST:PORT of the newest that has followed this server
        self.primary = ""  # HOST:PORT of the server whose place this one has taken
        self.duplicates = 0
        self._past = PastWeights()  # of a run that compensates delays; empty in others

    @classmethod
    def restored(cls, vectors: dict[str, Tensor], record: dict[str, Any], *, now: float) -> "TrainingRun":
        """
        The run that a checkpoint keeps, in the epoch in which it was kept.

        Raises SettingsError or CheckpointError when its settings or its content mean nothing to this program.
        """
        try:
            lineage = msgspec.convert(record["lineage"], Lineage)
            run = cls(run_from_dict(record["run"], source="checkpoint"), lineage, now=now)
            run.seed(Schema.from_list(record["schema"]), vectors["weights"])
            run.standby, run.primary = record["standby"], record["primary"]
            run.weights.restore(vectors, version=record["version"], target_version=record["target_version"])
            run._keep_for_late_gradients()
            run.ledger.restore(record["ledger"])
            run.progress.restore(record["progress"])
            run.progress.judge(run.spec.budget, now=now)  # it may have been reached, or be another now
        except (KeyError, RuntimeError, SchemaMismatch, msgspec.ValidationError) as error:
            raise CheckpointError(f"the checkpoint is of another version of ps-rl: {error!r}") from error
        return run

    def record(self, *, now: float) -> dict[str, Any]:
        """What a checkpoint keeps beside the vectors, as plain values."""
        return {
            "lineage": msgspec.to_builtins(self.lineage),
            "standby": self.standby,
            "primary": self.primary,
            "version": self.weights.version,
            "target_version": self.weights.target_version,
            "run": self.spec.to_dict(),
            "schema": self.weights.schema.to_list(),
            "ledger": self.ledger.to_dict(),
            "progress": self.progress.to_dict(now=now),
        }

    @property
    def epoch(self) -> int:
        """The life of the server in which the run is now."""
        return self.lineage.epoch

    @property
    def weights(self) -> WeightStore:
        """The weights of a seeded run."""
        assert self.store is not None, "the run is not seeded yet; the server's phases let nobody come here"
        return self.store

    @property
    def learning_rate(self) -> float:
        """Of the next update, before staleness damps it."""
        schedule = self.spec.schedule
        initial, final = schedule.learning_rate, schedule.final_learning_rate
        return linear(self.progress.global_steps, initial=initial, final=final, over=schedule.anneal_steps)

    def seed(self, schema: Schema, weights: Tensor) -> None:
        """The first weights [P]."""
        optimizer = optimizer_for(self.spec.optimizer, schema.weights)
        self.store = WeightStore(schema, weights, optimizer, has_target=self._target_interval > 0)
        self._keep_for_late_gradients()

    def join(self, worker_id: str, opened: Opened) -> Account:
        """The account of a process that was admitted as this worker."""
        return self.ledger.open(
            worker_id,
            opened.incarnation,
            proof=opened.proof,
            key=opened.key,
            oldest=opened.oldest,
            environments=opened.environments,
        )

    def is_new(self, worker_id: str, push: Push) -> bool:
        """
        Whether this push is not settled yet, and is to be.

        Raises Denied when its sequence is outside the window; it can be sent again when the older ones are settled.
        """
        self.ledger.forget_before(worker_id, push.oldest)
        standing = self.ledger.judge(worker_id, push.sequence)
        if standing == "outside window":
            raise Denied("outside_window", f"push {push.sequence} is too far beyond the oldest unsettled one")
        return standing == "new"

    def settled_before(self, worker_id: str, push: Push) -> Settlement:
        """What is said of a push that was settled before: it changes nothing."""
        self.duplicates += 1
        return self._settlement(worker_id, push, None)

    def settle(self, pushes: Sequence[tuple[str, Push, Sequence[Buffer]]]) -> list[Settlement]:
        """
        Apply new pushes, of (worker id, push, vector), as one update: their mean, if they are several.

        What is added to statistics is added for each. A push that is not sound is discarded, with a reason.
        """
        judged = [self._judge(*one) for one in pushes]
        if sound := [one for one in judged if isinstance(one, _Sound)]:
            self._apply(sound[0] if len(sound) == 1 else _mean(sound, self.weights.schema))
        return [self._settlement(worker, push, one) for (worker, push, _), one in zip(pushes, judged, strict=True)]

    def _judge(self, worker_id: str, push: Push, vector: Sequence[Buffer]) -> "_Sound | _Unsound":
        """Settle a push: whether it is applied is decided here, and it will not be looked at again."""
        self.ledger.settle(worker_id, push.sequence)
        account = self.ledger.accounts[worker_id]
        # Versions of different epochs do not compare: a push that outlived a server counts as fresh.
        staleness = max(0, self.weights.version - push.computed_on) if push.epoch == self.epoch else 0
        try:
            unroll_length = self.spec.algorithm.unroll_length
            check_steps(push.steps, environments=account.environments, unroll_length=unroll_length)
            account.unplayed += push.steps  # also of one that is discarded: its games were played
            gradient, norm = gradient_of(push, vector, self.weights.schema)
            if self.spec.staleness.rule == "delay_compensated" and staleness > 0:
                gradient = self._compensated(gradient, staleness)
            return _Sound(staleness, push.steps, gradient, norm, worth(staleness, self.spec.staleness))
        except Denied as denied:
            return _Unsound(staleness, denied)

    def _apply(self, one: "_Sound") -> None:
        steps_before = self.progress.global_steps
        self.weights.apply(one.gradient, self.learning_rate * one.worth)
        self._keep_for_late_gradients()
        self.progress.update_applied(steps=one.steps, staleness=one.staleness, gradient_norm=one.norm)
        self._refresh_target(steps_before)

    def _compensated(self, gradient: Tensor, staleness: int) -> Tensor:
        """A late gradient [P], mended where it is one of weights. Raises Denied when it grows beyond all bounds."""
        weights, strength = self.weights.schema.weights, self.spec.staleness.compensation
        mended = self._past.compensated(gradient[:weights], staleness=staleness, strength=strength)
        if not is_sane(mended):
            raise Denied(
                "not_finite", f"compensated for {staleness} versions the gradient is NaN, Inf or absurdly large"
            )
        return torch.cat([mended, gradient[weights:]])

    def _keep_for_late_gradients(self) -> None:
        if self.spec.staleness.rule == "delay_compensated":
            self._past.keep(self.weights.flat[: self.weights.schema.weights])

    def _refresh_target(self, steps_before: int) -> None:
        """θ⁻ ← θ whenever T has passed a multiple of the interval; once, however many a push has passed."""
        interval = self._target_interval
        if interval and self.progress.global_steps // interval > steps_before // interval:
            self.weights.refresh_target()

    @property
    def _target_interval(self) -> int:
        """Steps from one refresh of θ⁻ to the next; 0 where θ⁻ is θ."""
        settings = self.spec.algorithm
        return settings.target_interval if isinstance(settings, ActionValuesSettings) else 0

    def check_report(self, worker_id: str, report: Report, *, unsettled: int) -> None:
        """`unsettled`: steps of pushes that are here and not settled yet. Raises Denied when it cannot be true."""
        check_games(report.episodes, unplayed=self.ledger.accounts[worker_id].unplayed + unsettled)

    def go_back(self, vectors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """
        The weights, and what the optimizer remembers, are those of a checkpoint of this run again, as a new version.

        T, scores and ledger go on as they are. Raises CheckpointError when it is of another network.
        """
        if Schema.from_list(record["schema"]) != self.weights.schema or "weights" not in vectors:
            raise CheckpointError("the newest checkpoint is of another network")
        version = self.weights.version + 1
        self.weights.restore(vectors, version=version, target_version=version)
        self._past = PastWeights()
        self._keep_for_late_gradients()

    def note_report(self, worker_id: str, report: Report, *, now: float) -> bool:
        """Count a report that is true, as far as `check_report` sees; False when it was counted before."""
        account = self.ledger.accounts[worker_id]
        if report.sequence <= account.reported:
            return False
        account.reported = report.sequence
        account.unplayed -= sum(episode.length for episode in report.episodes)
        for episode in report.episodes:
            self.progress.episode_finished(episode, self.spec.budget, now=now)
        return True

    def end_reason(self, *, now: float) -> str:
        """Why the run is over; "" while it is not."""
        return self.progress.end_of(self.spec.budget, now=now)

    def _settlement(self, worker_id: str, push: Push, judged: "_Sound | _Unsound | None") -> Settlement:
        """What is said of a push; None: it was settled before."""
        denied = judged.reason if isinstance(judged, _Unsound) else None
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


@dataclass(frozen=True, eq=False)
class _Sound:
    """A gradient [P] to apply, the norm of its part for weights, and the factor that its lateness leaves it."""

    staleness: int
    steps: int
    gradient: Tensor
    norm: float
    worth: float


@dataclass(frozen=True, eq=False)
class _Unsound:
    """A push that changes nothing."""

    staleness: int
    reason: Denied


def _mean(sound: Sequence[_Sound], schema: Schema) -> _Sound:
    """As one: the mean for weights, the sum for statistics, always in this order."""
    total = torch.zeros(schema.size)
    for one in sound:
        total[: schema.weights].add_(one.gradient[: schema.weights], alpha=one.worth / len(sound))
        total[schema.weights :] += one.gradient[schema.weights :]
    return _Sound(
        staleness=max(one.staleness for one in sound),
        steps=sum(one.steps for one in sound),
        gradient=total,
        norm=float(torch.linalg.vector_norm(total[: schema.weights])),
        worth=1.0,
    )
