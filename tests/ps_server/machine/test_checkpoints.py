"""When a checkpoint is begun, which requests it answers, and which pushes are durable when it is complete."""

from collections.abc import Sequence

import pytest
import torch

from ps_common.protocol.messages import CheckpointSaved, Opened, Refused
from ps_server.machine.checkpoints import BEST_SHARE, EARLY_SECONDS, STALLED_SECONDS, Checkpoints, Content
from ps_server.machine.membership import Membership
from ps_server.machine.refusals import Refusals
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, SaveCheckpoint, Send
from ps_server.state.rollback import Rollback
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import SCHEMA, START, a_lineage, a_run

EVERY = 30.0
OPENED = Opened(incarnation=1, proof="p", key="", oldest=1, environments=1)


def checkpoints_of(run: TrainingRun | None, *, every_seconds: float = EVERY, now: float = START) -> Checkpoints:
    refusals = Refusals(Membership(5.0, now=now))
    parts = {"replication": Replication(), "refusals": refusals, "rollback": Rollback()}
    return Checkpoints(every_seconds, run, **parts, now=now)  # type: ignore[arg-type]


def answered(effects: Sequence[Effect]) -> list[tuple[bytes, int]]:
    """The requests that these reply to, by connection."""
    replies = [effect for effect in effects if isinstance(effect, Send)]
    assert all(isinstance(one.message, CheckpointSaved | Refused) for one in replies)
    return [(one.to, one.message.request) for one in replies]


@pytest.fixture
def plan() -> Checkpoints:
    return checkpoints_of(None)


@pytest.fixture
def run() -> TrainingRun:
    """One worker has settled pushes 1 to 3."""
    return run_of_one_worker(settled=3)


def run_of_one_worker(*, settled: int) -> TrainingRun:
    run = TrainingRun(a_run(), a_lineage())
    run.seed(SCHEMA, torch.zeros(SCHEMA.size))
    run.join("a", OPENED)
    for sequence in range(1, settled + 1):
        run.ledger.settle("a", sequence)
    return run


def test_a_checkpoint_is_due_when_its_time_has_come_and_something_changed(plan: Checkpoints) -> None:
    assert not plan.is_due(5, now=START + 29.9)
    assert plan.is_due(5, now=START + 30)
    assert not plan.is_due(0, now=START + 1000), "the version is the saved one"


def test_the_best_so_far_is_saved_sooner_and_not_all_the_time(plan: Checkpoints, run: TrainingRun) -> None:
    assert not plan.is_due(5, now=START)
    assert plan.is_due(5, best=True, now=START)
    plan.started(Content(5, run.ledger.record()), now=START)
    assert not plan.is_due(6, best=True, now=START + 10), "one at a time"
    plan.completed(run, "a path")
    assert not plan.is_due(6, best=True, now=START + EVERY * BEST_SHARE - 0.1)
    assert plan.is_due(6, best=True, now=START + EVERY * BEST_SHARE)
    plan.started(Content(6, run.ledger.record()), now=START + 10)
    plan.failed(run, "the disk is full")
    assert not plan.is_due(7, best=True, now=START + 30), "a full disk is not tried more often"


def test_every_so_many_episodes_one_is_kept_apart(plan: Checkpoints, run: TrainingRun) -> None:
    assert not plan.is_milestone(249, every=250)
    assert plan.is_milestone(253, every=250)
    assert not plan.is_milestone(253, every=0)
    plan.started(Content(5, run.ledger.record(), episodes=253), now=START)
    assert not plan.is_milestone(600, every=250), "one at a time"
    plan.completed(run, "a path")
    assert not plan.is_milestone(499, every=250)
    assert plan.is_milestone(500, every=250), "counted from the start of the run, not from the last one"


def test_a_milestone_is_passed_when_it_is_on_disk_and_does_not_hurry_a_full_one(
    plan: Checkpoints, run: TrainingRun
) -> None:
    assert plan.is_due(0, milestone=True, now=START)
    plan.started(Content(5, run.ledger.record(), episodes=253), now=START)
    plan.failed(run, "the disk is full")
    assert plan.is_milestone(253, every=250)
    assert not plan.is_due(5, milestone=True, now=START + EVERY - 0.1)
    assert plan.is_due(0, milestone=True, now=START + EVERY), "games alone may have come since the saved version"


def test_the_next_is_due_an_interval_after_the_last_was_begun(plan: Checkpoints, run: TrainingRun) -> None:
    plan.started(Content(5, run.ledger.record()), now=START + 50)
    plan.completed(run, "a path")
    assert not plan.is_due(6, now=START + 79)
    assert plan.is_due(6, now=START + 80)


def test_a_completed_checkpoint_makes_durable_what_it_held_when_it_was_begun(
    plan: Checkpoints, run: TrainingRun
) -> None:
    plan.started(Content(5, run.ledger.record()), now=START)
    run.ledger.settle("a", 4)
    assert (plan.saved.position, run.ledger.accounts["a"].durable) == (0, 0)
    plan.completed(run, "a path")
    assert (plan.saved.position, run.ledger.accounts["a"].durable) == (5, 3)


def test_a_failed_checkpoint_makes_nothing_durable_and_is_tried_again_when_due(
    plan: Checkpoints, run: TrainingRun
) -> None:
    plan.started(Content(5, run.ledger.record()), now=START)
    plan.failed(run, "the disk is full")
    assert (plan.failures, plan.saved.position, run.ledger.accounts["a"].durable) == (1, 0, 0)
    assert not plan.is_due(5, now=START + 1), "a full disk is not asked again at once"
    assert plan.is_due(5, now=START + 30)
    plan.started(Content(6, run.ledger.record()), now=START + 30)
    plan.completed(run, "a path")
    assert (plan.failures, plan.saved.position, run.ledger.accounts["a"].durable) == (1, 6, 3)


def test_a_request_is_answered_when_the_checkpoint_is_complete(plan: Checkpoints, run: TrainingRun) -> None:
    (begun,) = plan.ask(run, b"1", 10, now=START)
    assert isinstance(begun, SaveCheckpoint), "asked for, it is written even if nothing changed"
    assert answered(plan.completed(run, "a path")) == [(b"1", 10)]
    assert not plan.is_due(run.weights.version, now=START)


def test_a_request_during_a_write_is_answered_by_the_next_checkpoint(plan: Checkpoints, run: TrainingRun) -> None:
    """A request for a checkpoint is for the present weights; the one under way is older."""
    plan.ask(run, b"1", 10, now=START)
    assert plan.ask(run, b"2", 20, now=START) == []
    assert answered(plan.completed(run, "a path")) == [(b"1", 10)]
    (begun,) = plan.tick(run, now=START)
    assert isinstance(begun, SaveCheckpoint)
    assert answered(plan.completed(run, "a path")) == [(b"2", 20)]


def test_early_checkpoints_are_not_written_too_often(plan: Checkpoints, run: TrainingRun) -> None:
    plan.checkpoint_early()
    assert plan.is_due(5, now=START)
    plan.started(Content(5, run.ledger.record()), now=START)
    plan.checkpoint_early()
    assert not plan.is_due(6, now=START + 10), "one is being written"
    plan.completed(run, "a path")
    assert not plan.is_due(6, now=START + 0.9 * EARLY_SECONDS)
    assert plan.is_due(6, now=START + EARLY_SECONDS)
    plan.started(Content(6, run.ledger.record()), now=START + EARLY_SECONDS)
    plan.completed(run, "a path")
    assert not plan.is_due(7, now=START + 10), "the hurry is over"


def test_a_resend_buffer_that_stays_full_brings_the_next_checkpoint_at_once(
    plan: Checkpoints, run: TrainingRun
) -> None:
    plan.started(Content(5, run.ledger.record()), now=START)
    for sequence in range(4, 11):
        run.ledger.settle("a", sequence)
    plan.early_for("a", run.ledger.accounts["a"])
    plan.completed(run, "a path")
    account = run.ledger.accounts["a"]
    assert (account.through, account.durable) == (10, 3)
    assert plan.is_due(6, now=START + EARLY_SECONDS)


def test_a_checkpoint_that_lacks_a_worker_does_not_count_for_its_hurry(plan: Checkpoints, run: TrainingRun) -> None:
    plan.started(Content(5, run.ledger.record()), now=START)
    run.ledger.open("b", OPENED)
    run.ledger.settle("b", 1)
    plan.early_for("b", run.ledger.accounts["b"])
    plan.completed(run, "a path")
    assert plan.is_due(6, now=START + EARLY_SECONDS)


def test_one_that_takes_too_long_counts_as_failed_until_it_is_written(plan: Checkpoints, run: TrainingRun) -> None:
    """A frozen disk refuses nothing: workers waited for a checkpoint that never came, and nobody was told."""
    plan.ask(run, b"1", 10, now=START)
    plan.ask(run, b"2", 20, now=START)
    assert plan.tick(run, now=START + STALLED_SECONDS) == []
    assert (plan.failing, plan.is_stalled) == (False, False)
    assert answered(plan.tick(run, now=START + STALLED_SECONDS + 1)) == [(b"1", 10), (b"2", 20)]
    assert (plan.failing, plan.is_stalled, plan.failures) == (True, True, 1)
    assert plan.tick(run, now=START + 1000) == [], "it is told once, and nothing else can be written meanwhile"
    assert answered(plan.completed(run, "a path")) == []
    assert (plan.failing, plan.is_stalled, plan.saved.version, run.ledger.accounts["a"].durable) == (False, False, 1, 3)
