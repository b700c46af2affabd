"""
When a checkpoint is written, and what is durable once it is. At most one is being written at a time.

While a standby follows, what a checkpoint holds is durable only when the standby has it too.

What a checkpoint of the run holds, and who hears what has become of it. When one is due: checkpoint_schedule.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from common.errors import CheckpointError, SchemaMismatch
from common.protocol.messages import CheckpointSaved, Refused
from common.protocol.names import LONGEST_SENTENCE, as_text
from ps_server.machine.effects import Effect, Note, Recall, SaveCheckpoint, Send
from ps_server.machine.membership import PeerId
from ps_server.machine.refusals import Refusals
from ps_server.replication.replication import Replication
from ps_server.state.guards import Denied
from ps_server.state.ledger import Account, Ledger
from ps_server.state.soundness import Soundness
from ps_server.state.training_run import TrainingRun

HURRY_SECONDS = 0.25  # at least, from the beginning of one checkpoint to that of the next which workers ask for early
STALLED_SECONDS = 30.0  # that writing one takes at least, before the disk is taken for one that does not answer
SLOWER = 4.0  # times the longest so far: likewise
LITTLE_SHARE = 0.5  # of what a worker keeps may be left when the checkpoint that is coming is durable
BEST_SHARE = 1 / 6  # of the usual time has to pass before one is begun because the run has never been better


@dataclass(frozen=True)
class _Content:
    """What a checkpoint holds: a version, games, the ledger's accounts, and everything up to `number` for a standby."""

    version: int
    episodes: int
    accounts: dict[str, Any]
    number: int


class CheckpointSchedule:
    """The bookkeeping around the shell's background writer. `now` is seconds of any monotonic clock."""

    def __init__(self, every_seconds: float, *, saved_version: int, now: float, episodes: int = 0) -> None:
        """`episodes` have been played before: their milestones are passed."""
        self.failures = 0
        self.failing = False  # whether the newest one could not be written, or takes too long
        self.is_stalled = False  # the one that is being written takes too long
        self.saved_version = saved_version  # of the newest completed checkpoint; 0 before the first
        self.saved_episodes = episodes  # in it
        self._asked: dict[PeerId, int] = {}  # who waits for one that is not begun yet, and the request
        self._waiting: dict[PeerId, int] = {}  # who waits for the one that is being written
        self._every_seconds = every_seconds
        self._due = now + every_seconds
        self._hurried = False  # a worker wants one before it is due
        self._hurry_due = now
        self._best_due = now
        self._writing: _Content | None = None
        self._begun = now  # the one that is being written
        self._age_seconds = self._longest_seconds = 0.0  # of it, when last looked at; of the slowest
        self._unreleased: list[_Content] = []  # on disk, and not yet at the standby that follows
        self._milestone = episodes  # at the newest checkpoint that is kept apart

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint has been started and is not yet complete."""
        return self._writing is not None

    @property
    def waits_for_standby(self) -> bool:
        """Whether a checkpoint is on disk, and what it holds not yet at the standby."""
        return bool(self._unreleased)

    def ask(self, peer: PeerId, request: int) -> None:
        """
        Somebody wants a checkpoint begun from now on: one being written is older. Asked again, nothing changes.

        Of each peer the newest question alone is remembered: who asks without end costs no memory.
        """
        if self._waiting.get(peer) != request:
            self._asked[peer] = request

    def hurry(self) -> None:
        """The next checkpoint should be begun before its time."""
        self._hurried = True

    def hurry_for(self, worker_id: str, account: Account) -> None:
        """
        A worker can keep few more pushes that are not durable.

        The worker goes on asking while a checkpoint is written. One that holds most of its pushes is the answer
        already: another one would free little, and large runs would write twice as much.
        """
        kept = account.through - account.durable
        if self._writing is not None and worker_id in self._writing.accounts:
            kept_then = account.through - self._writing.accounts[worker_id]["through"]
            self._hurried = self._hurried or kept_then > kept * LITTLE_SHARE
        else:
            self._hurried = self._hurried or kept > 0

    def is_due(self, version: int, *, best: bool = False, now: float) -> bool:
        """Whether to start one now: asked for, or time has come and something changed; sooner if it were the best."""
        if self.is_writing:
            return False
        # A full disk is not tried more often because somebody is in a hurry.
        early = (self._hurried and now >= self._hurry_due) or (best and now >= self._best_due)
        if early and not self.failing:
            return True
        return bool(self._asked) or (now >= self._due and version != self.saved_version)

    def is_milestone(self, episodes: int, *, every: int) -> bool:
        """Whether to start one now and keep it apart: another `every` episodes have been played. 0: never."""
        return not self.is_writing and every > 0 and episodes // every > self._milestone // every

    def started(
        self,
        version: int,
        accounts: dict[str, Any],
        *,
        now: float,
        episodes: int = 0,
        milestone: int | None = None,
        number: int = 0,
    ) -> None:
        """
        A checkpoint of this version is being written, after so many episodes; `milestone` episodes are why it is kept
        apart. `number` is that of the newest update for a standby.
        """
        if milestone is not None:
            self._milestone = milestone
        self._writing = _Content(version, episodes, accounts, number)
        self._begun, self._age_seconds = now, 0.0
        self._waiting, self._asked = self._asked, {}
        self._due = now + self._every_seconds
        self._hurried = False
        self._hurry_due = now + HURRY_SECONDS
        self._best_due = now + self._every_seconds * BEST_SHARE

    def stalls(self, *, now: float) -> bool:
        """Whether the one that is being written has just been found to take too long."""
        if self._writing is None or self.is_stalled:
            return False
        self._age_seconds = now - self._begun
        self.is_stalled = self._age_seconds > max(STALLED_SECONDS, SLOWER * self._longest_seconds)
        return self.is_stalled

    def stalled(self) -> list[tuple[PeerId, int]]:
        """It counts as failed. Returns who asked for it, or for the one after it."""
        self.failures += 1
        self.failing = True
        waiting = list((self._waiting | self._asked).items())
        self._waiting, self._asked = {}, {}
        return waiting

    def completed(self, ledger: Ledger, *, followed: int | None = None) -> list[tuple[PeerId, int]]:
        """It is on disk: what it holds is durable, once it is released. Returns who asked for it."""
        assert self._writing is not None, "the shell completed a checkpoint that was not started"
        self.saved_version, self.saved_episodes = self._writing.version, self._writing.episodes
        self._unreleased.append(self._writing)
        self.release(ledger, followed=followed)
        self.failing = False
        self._longest_seconds = max(self._longest_seconds, self._age_seconds)
        return self._finished()

    def release(self, ledger: Ledger, *, followed: int | None) -> None:
        """A standby has every update up to `followed`; None when nobody waits for one."""
        waiting, self._unreleased = self._unreleased, []
        for content in waiting:
            if followed is None or content.number <= followed:
                ledger.mark_durable(content.accounts)
            else:
                self._unreleased.append(content)

    def failed(self) -> list[tuple[PeerId, int]]:
        """It could not be written; the next is tried when it is due. Returns who asked for it."""
        self.failures += 1
        self.failing = True
        return self._finished()

    def _finished(self) -> list[tuple[PeerId, int]]:
        self._writing, self.is_stalled = None, False
        waiting, self._waiting = self._waiting, {}
        return list(waiting.items())


NOTHING_TO_GO_BACK_TO = "the weights hold NaN or Inf, and there is nothing to go back to: "
STALLED = "the disk does not take it; training goes on, and it counts when it is written after all"


class Saving:
    """Checkpoints of a seeded run, one at a time. The shell writes them, and says when that is done."""

    def __init__(
        self, plan: CheckpointSchedule, replication: Replication, refusals: Refusals, soundness: Soundness
    ) -> None:
        self._plan = plan
        self._soundness = soundness
        self._replication = replication
        self._refusals = refusals

    def tick(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Begin one if it is due."""
        if run.store is None:
            return []
        if self._plan.stalls(now=now):
            return self._failure_replies(STALLED, self._plan.stalled())
        is_due = self._plan.is_due(run.store.version, best=run.progress.is_better_than_saved, now=now)
        is_due = is_due or self._milestone(run) is not None
        return self.begin(run, now=now) if is_due else []

    def ask(self, run: TrainingRun | None, peer: PeerId, request: int, *, now: float) -> list[Effect]:
        """CHECKPOINT_REQUEST. Raises Denied."""
        if run is None or run.store is None:
            raise Denied("no_weights", "there is nothing to save yet: no worker has seeded the run")
        if self._plan.is_stalled:
            raise Denied("checkpoint_failed", STALLED)
        self._plan.ask(peer, request)
        return self.begin(run, now=now)

    def begin(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Write one now, unless there are no weights, or one is being written."""
        if run.store is None or self._plan.is_writing:
            return []
        best, milestone = run.progress.save_as_best(), self._milestone(run)
        record = run.record(now=now)
        number = self._replication.number
        episodes = run.progress.episodes
        self._plan.started(
            run.store.version, record["ledger"], episodes=episodes, milestone=milestone, number=number, now=now
        )
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
        return self._failure_replies(reason, self._plan.failed())

    def go_back(
        self, run: TrainingRun, checkpoint: str, vectors: dict[str, Tensor], record: dict[str, Any]
    ) -> list[Effect]:
        """The run whose weights are lost goes on from this checkpoint. Raises CheckpointError when that is no use."""
        lost = f"the weights hold NaN or Inf; applied since they were sound: pushes of {self._soundness.suspects()}"
        if not self._soundness.returned(checkpoint):
            raise CheckpointError(f"{lost}. Going back to {checkpoint} has not helped: take smaller steps")
        try:
            run.go_back(vectors, record)
        except (CheckpointError, SchemaMismatch, KeyError) as error:
            raise CheckpointError(NOTHING_TO_GO_BACK_TO + str(error)) from error
        note = Note(f"{lost}. Going on from {checkpoint}, without the updates since", warning=True)
        return [note, *self._replication.begin_anew()]

    def _failure_replies(self, reason: str, askers: Sequence[tuple[PeerId, int]]) -> list[Effect]:
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
