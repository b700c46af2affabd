"""What a checkpoint of the run holds, and who hears what has become of it. When one is due: checkpoint_plan.py."""

from collections.abc import Sequence

from common.messages import CheckpointSaved, Refused
from common.names import LONGEST_SENTENCE, as_text
from ps_server.checkpoint_plan import CheckpointPlan
from ps_server.effects import Effect, Note, Recall, SaveCheckpoint, Send
from ps_server.membership import PeerId
from ps_server.refusals import Refusals
from ps_server.replication import Replication
from ps_server.training_run import TrainingRun

STALLED = "the disk does not take it; training goes on, and it counts when it is written after all"


class Saving:
    """Checkpoints of a seeded run, one at a time. The shell writes them, and says when that is done."""

    def __init__(self, plan: CheckpointPlan, replication: Replication, refusals: Refusals) -> None:
        self._plan = plan
        self._replication = replication
        self._refusals = refusals

    def tick(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Begin one if it is due."""
        if run.store is None:
            return []
        if self._plan.stalls(now=now):
            return self._tell_of_failure(STALLED, self._plan.stalled())
        is_due = self._plan.is_due(run.store.version, best=run.progress.is_better_than_saved, now=now)
        is_due = is_due or self._milestone(run) is not None
        return self.begin(run, now=now) if is_due else []

    def begin(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Write one now, unless there are no weights, or one is being written."""
        if run.store is None or self._plan.is_writing:
            return []
        best, milestone = run.progress.save_as_best(), self._milestone(run)
        record = run.record(now=now)
        number = self._replication.number
        self._plan.started(run.store.version, record["ledger"], milestone=milestone, number=number, now=now)
        if not run.store.is_sound():  # sound checkpoints must not be pushed out by useless ones
            return [*self.failed(run, "the weights, or what the optimizer remembers, hold NaN or Inf"), Recall()]
        keep, steps = run.spec.records.keep_checkpoints, run.progress.global_steps
        return [SaveCheckpoint(run.store.vectors(), record, steps, best=best, keep=keep, milestone=milestone)]

    def completed(self, run: TrainingRun, path: str) -> list[Effect]:
        """The shell has completed the checkpoint that was being written."""
        askers = self._plan.completed(run.ledger, followed=self._replication.followed)
        version, where = self._plan.saved_version, as_text(path, LONGEST_SENTENCE)
        return [Send(peer, CheckpointSaved(request=asked, path=where, version=version)) for peer, asked in askers]

    def failed(self, run: TrainingRun, reason: str) -> list[Effect]:
        """The shell could not write the checkpoint. Training goes on; the next one is tried when it is due."""
        run.progress.best_saved = None  # it may have been the one
        return self._tell_of_failure(reason, self._plan.failed())

    def _tell_of_failure(self, reason: str, askers: Sequence[tuple[PeerId, int]]) -> list[Effect]:
        effects: list[Effect] = [Note(f"checkpoint failed: {reason}", warning=True)]
        told = as_text(reason, LONGEST_SENTENCE)
        for peer, asked in askers:
            self._refusals.counts["checkpoint_failed"] += 1
            effects.append(Send(peer, Refused(request=asked, code="checkpoint_failed", reason=told)))
        return effects

    def _milestone(self, run: TrainingRun) -> int | None:
        """Episodes so far, if a checkpoint begun now would be one of those that the run wants kept apart."""
        episodes, every = run.progress.episodes, run.spec.records.checkpoint_every_episodes
        return episodes if self._plan.is_milestone(episodes, every=every) else None
