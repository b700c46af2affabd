"""
Checkpoints: when one is due, what it holds, which pushes are durable once it is complete, and who gets a reply then.
The shell writes one at a time, in the background.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace
from torch import Tensor

from ps_common.protocol.messages import CheckpointSaved, Refused
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.protocol.record import Account, Record
from ps_server.machine.refusals import Refusals
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, LogLine, PeerId, ReloadCheckpoint, SaveCheckpoint, Send
from ps_server.state.guards import Denied
from ps_server.state.ledger import Ledger
from ps_server.state.rollback import Rollback
from ps_server.state.training_run import TrainingRun

# The shortest time between the beginnings of two checkpoints, however much workers need the second.
EARLY_SECONDS = 0.25
# Until a checkpoint counts as stalled: seconds, or a multiple of the time of the slowest so far where that is longer.
STALLED_SECONDS, SLOWER = 30.0, 4.0
# After a failure the next is tried after so long, however long the interval is: workers keep pushes meanwhile.
RETRY_SECONDS = 30.0
# Another checkpoint follows at once only if the one in progress leaves more of a worker's resend buffer undurable.
LITTLE_SHARE = 0.5
# This share of the interval has to pass before the best mean return so far is worth a checkpoint.
BEST_SHARE = 1 / 6

NOT_FINITE = "the weights, or what the optimizer remembers, hold NaN or Inf"
STALLED = "the disk, or the store, does not take it; training goes on, and it counts when it is written after all"


@dataclass(frozen=True)
class Content:
    """What a checkpoint holds of the run: all changes up to this position of its log."""

    position: int
    accounts: dict[str, Account]
    version: int = 0
    episodes: int = 0
    is_last: bool = False  # no worker joins after it


NOTHING = Content(0, {})


class Checkpoints:
    """The checkpoints of one server: when, and who waits for one. `now` is seconds of any monotonic clock."""

    def __init__(
        self,
        every_seconds: float,
        run: TrainingRun | None,
        *,
        replication: Replication,
        refusals: Refusals,
        rollback: Rollback,
        now: float,
    ) -> None:
        """What a restored run has is in its newest checkpoint."""
        self._replication, self._refusals, self._rollback = replication, refusals, rollback
        self.failures = 0
        self.failing = False  # the newest one could not be written, or is stalled
        self.error = ""  # why
        self.is_stalled = False  # writing takes too long
        self.saved = NOTHING
        if run is not None and run.store is not None:
            self.saved = Content(run.log.position, {}, run.store.version, run.progress.episodes)
        self.saved_at: float | None = None  # the moment of its content; None: an earlier server has written it
        self.every_seconds, self._due = every_seconds, now + every_seconds
        self._is_early = False  # a worker needs one before it is due
        self._early_due = self._best_due = now
        self._asked: dict[PeerId, int] = {}  # requests for a checkpoint that is not begun yet
        self._waiting: dict[PeerId, int] = {}  # requests for the one that is being written
        self._writing: Content | None = None
        self._begun = now  # when the checkpoint in progress was begun
        self._age_seconds = 0.0  # how long the checkpoint in progress had taken at the last tick
        self._longest_seconds = 0.0  # the same of the slowest checkpoint so far
        self._undurable: list[Content] = []  # on disk, in order, and not yet at a standby that has to have it
        # What holds again if the newest fails: the mean return of the best checkpoint, and the candidate with its T.
        self._before: tuple[float | None, int, int] = (None, 0, 0)
        self._not_finite = 0  # the newest version that could not be saved

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint has been started and is not yet complete."""
        return self._writing is not None

    @property
    def waits_for_standby(self) -> bool:
        """Whether a checkpoint is complete, and the standby lacks some of its pushes."""
        return bool(self._undurable)

    def lacks(self, run: TrainingRun) -> bool:
        """Whether the run has a change that the newest checkpoint lacks."""
        return run.store is not None and run.log.position != self.saved.position

    # -- when ---------------------------------------------------------------------------------------------------------

    def checkpoint_early(self) -> None:
        """The next checkpoint is needed before it is due."""
        self._is_early = True

    def early_for(self, worker_id: str, account: Account) -> None:
        """
        A worker's resend buffer fills up.

        Its heartbeats repeat that while a checkpoint is being written. If that one holds most of its pushes, another
        one would free little, and large runs would write twice as much.
        """
        kept = account.through - account.durable
        if self._writing is not None and worker_id in self._writing.accounts:
            kept_then = account.through - self._writing.accounts[worker_id].through
            self._is_early = self._is_early or kept_then > kept * LITTLE_SHARE
        else:
            self._is_early = self._is_early or kept > 0

    def change_interval(self, every_seconds: float, *, now: float) -> None:
        if every_seconds != self.every_seconds:
            self.every_seconds, self._due = every_seconds, now + every_seconds

    def is_due(self, position: int, *, best: bool = False, milestone: bool = False, now: float) -> bool:
        """Whether to begin one now: it is requested, or needed early, or its time has come and the run has changed."""
        if self.is_writing:
            return False
        is_time = now >= self._due
        is_needed = milestone or (self._is_early and now >= self._early_due) or (best and now >= self._best_due)
        # After a failure, perhaps of a full disk, none is begun before its time.
        is_early = is_needed and (is_time or not self.failing)
        return bool(self._asked) or is_early or (is_time and position != self.saved.position)

    def is_milestone(self, episodes: int, *, every: int) -> bool:
        """Whether one that is begun now is to be kept, because another `every` episodes have been played; 0: never."""
        return not self.is_writing and every > 0 and episodes // every > self.saved.episodes // every

    def tick(self, run: TrainingRun, *, now: float) -> list[Effect]:
        if run.store is None:
            return []
        if self._writing is not None:
            return self._look_at_age(now=now)
        best = run.progress.is_better_than_saved
        milestone = self._milestone(run) is not None or run.progress.is_candidate_due
        is_due = self.is_due(run.log.position, best=best, milestone=milestone, now=now)
        return self.begin(run, now=now) if is_due else []

    def _look_at_age(self, *, now: float) -> list[Effect]:
        """One that has become stalled counts as failed, and whoever waits for it, or for the next, is told."""
        if self.is_stalled:
            return []
        self._age_seconds = now - self._begun
        self.is_stalled = self._age_seconds > max(STALLED_SECONDS, SLOWER * self._longest_seconds)
        if not self.is_stalled:
            return []
        waiting, self._waiting, self._asked = self._waiting | self._asked, {}, {}
        return self._has_failed(STALLED, waiting)

    # -- one checkpoint -----------------------------------------------------------------------------------------------

    def ask(self, run: TrainingRun | None, peer: PeerId, request: int, *, now: float) -> list[Effect]:
        """
        A peer requests a checkpoint that begins now or later; one that is being written is older. A retry changes
        nothing, and only the newest request of each peer is kept. Raises Denied.
        """
        if run is None or run.store is None:
            raise Denied("no_weights", "there is nothing to save yet: no worker has seeded the run")
        if self.is_stalled:
            raise Denied("checkpoint_failed", STALLED)
        if self._waiting.get(peer) != request:
            self._asked[peer] = request
        return self.begin(run, now=now)

    def begin(self, run: TrainingRun, *, now: float, is_last: bool = False) -> list[Effect]:
        """Begin one now, unless there are no weights, or one is being written. `is_last`: no worker joins after it."""
        if run.store is None or self.is_writing:
            return []
        if not run.store.is_all_finite():  # useless checkpoints must not replace good ones
            return self._not_begun(run.store.version)
        progress = run.progress
        self._before = progress.best_saved, progress.candidate, progress.candidate_steps
        best, milestone = progress.save_as_best(), self._milestone(run)
        candidate = progress.save_as_candidate(run.store.version)
        run.was_followed = bool(self._replication.address)
        record = replace(run.record(now=now), is_last=is_last, is_followed=run.was_followed)
        self._rollback.checkpoint_begun(run.store.version)
        content = Content(run.log.position, record.ledger, record.version, progress.episodes, is_last)
        self.started(content, now=now)
        vectors, keep = run.store.vectors(), run.spec.records.keep_checkpoints
        checkpoint = SaveCheckpoint(vectors, record, progress.global_steps, best, keep, milestone, candidate)
        return [checkpoint]

    def started(self, content: Content, *, now: float) -> None:
        self._writing = content
        self._begun, self._age_seconds = now, 0.0
        self._waiting, self._asked = self._asked, {}
        self._due, self._is_early = now + self.every_seconds, False
        self._early_due = now + EARLY_SECONDS
        self._best_due = now + self.every_seconds * BEST_SHARE

    def completed(self, run: TrainingRun, path: str) -> list[Effect]:
        """It is on disk."""
        saved, waiting = self._finished()
        again = "checkpoints can be written again: " if self.failing else ""
        self.saved, self.saved_at = saved, self._begun
        self._undurable.append(saved)
        self.mark_durable(run.ledger)
        self.failing, self.error = False, ""
        self._longest_seconds = max(self._longest_seconds, self._age_seconds)
        version, where = saved.version, as_text(path, LONGEST_SENTENCE)
        replies = [
            Send(peer, CheckpointSaved(request=one, path=where, version=version)) for peer, one in waiting.items()
        ]
        return [*replies, LogLine(f"{again}version {version} saved as {where}", kind="" if again else "checkpoint")]

    def failed(self, run: TrainingRun, reason: str) -> list[Effect]:
        """It could not be written. Training goes on; the next one is tried soon."""
        progress = run.progress
        progress.best_saved, progress.candidate, progress.candidate_steps = self._before
        self._is_early = True  # it may have been begun for settings that no newer version will have
        self._due = min(self._due, self._begun + self._age_seconds + RETRY_SECONDS)
        return self._has_failed(reason, self._finished()[1])

    def mark_durable(self, ledger: Ledger) -> None:
        """Changes are durable up to the newest position that is on disk, and at a standby that has to have it."""
        has_all = [one for one in self._undurable if one.position <= self._replication.followed]
        if has_all:
            ledger.mark_durable(has_all[-1].accounts)
            del self._undurable[: len(has_all)]

    def roll_back(self, run: TrainingRun, checkpoint: str, vectors: dict[str, Tensor], record: Record) -> list[Effect]:
        """The weights are lost: the run continues with those of this checkpoint. Raises CheckpointError."""
        if run.store is not None and run.store.is_all_finite():
            return []  # one loss may cause two ReloadCheckpoint
        sentence = self._rollback.roll_back(run, checkpoint, vectors, record)
        self._is_early = True  # a server that is resumed from an older one would apply the ruinous pushes again
        return [LogLine(sentence, warning=True), *self._replication.rolled_back()]

    def _not_begun(self, version: int) -> list[Effect]:
        """The weights are not finite. The run rolls back, or ends if it cannot: then the weights stay as they are."""
        refusals, self._asked = self._refuse(self._asked, NOT_FINITE), {}
        if version == self._not_finite:
            return refusals
        self._not_finite = version
        return [LogLine(f"no checkpoint is written: {NOT_FINITE}", warning=True), *refusals, ReloadCheckpoint()]

    def _finished(self) -> tuple[Content, dict[PeerId, int]]:
        """What is not being written any more, and the requests for it."""
        assert self._writing is not None, "the shell finished a checkpoint that was not started"
        finished, waiting = self._writing, self._waiting
        self._writing, self.is_stalled, self._waiting = None, False, {}
        return finished, waiting

    def _has_failed(self, reason: str, waiting: Mapping[PeerId, int]) -> list[Effect]:
        self.failures += 1
        self.failing, self.error = True, as_text(reason, LONGEST_SENTENCE)
        return [LogLine(f"checkpoint failed: {reason}", warning=True), *self._refuse(waiting, self.error)]

    def _refuse(self, waiting: Mapping[PeerId, int], reason: str) -> list[Effect]:
        self._refusals.counts.update({"checkpoint_failed": len(waiting)} if waiting else {})
        refused = Refused(request=0, code="checkpoint_failed", reason=reason)
        return [Send(peer, replace(refused, request=request)) for peer, request in waiting.items()]

    def _milestone(self, run: TrainingRun) -> int | None:
        """Episodes so far, if a checkpoint begun now would be that of a milestone."""
        episodes, records = run.progress.episodes, run.spec.records
        return episodes if self.is_milestone(episodes, every=records.checkpoint_every_episodes) else None
