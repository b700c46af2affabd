"""When a checkpoint is begun, which requests it answers, and which pushes are durable when it is complete."""

import math

import pytest

from ps_common.protocol.messages import Opened
from ps_server.machine.checkpoint_schedule import (
    BEST_SHARE,
    HURRY_SECONDS,
    SLOWER,
    STALLED_SECONDS,
    CheckpointSchedule,
    Content,
)
from ps_server.state.ledger import Ledger

START, EVERY = 1000.0, 30.0
OPENED = Opened(incarnation=1, proof="p", key="", oldest=1, environments=1)


@pytest.fixture
def plan() -> CheckpointSchedule:
    return CheckpointSchedule(EVERY, saved_version=0, now=START)


@pytest.fixture
def ledger() -> Ledger:
    """Of one worker that has settled pushes 1 to 3."""
    ledger = Ledger(window=8)
    ledger.open("a", OPENED)
    for sequence in (1, 2, 3):
        ledger.settle("a", sequence)
    return ledger


def test_a_checkpoint_is_due_when_its_time_has_come_and_something_changed(plan: CheckpointSchedule) -> None:
    assert not plan.is_due(5, now=START + 29.9)
    assert plan.is_due(5, now=START + 30)
    assert not plan.is_due(0, now=START + 1000), "the version is the saved one"


def test_the_best_so_far_is_saved_sooner_and_not_all_the_time(plan: CheckpointSchedule, ledger: Ledger) -> None:
    assert not plan.is_due(5, now=START)
    assert plan.is_due(5, best=True, now=START)
    plan.started(Content(5, ledger.record()), now=START)
    assert not plan.is_due(6, best=True, now=START + 10), "one at a time"
    plan.completed(ledger)
    assert not plan.is_due(6, best=True, now=START + EVERY * BEST_SHARE - 0.1)
    assert plan.is_due(6, best=True, now=START + EVERY * BEST_SHARE)
    plan.started(Content(6, ledger.record()), now=START + 10)
    plan.failed()
    assert not plan.is_due(7, best=True, now=START + 30), "a full disk is not tried more often"


def test_every_so_many_episodes_one_is_kept_apart(plan: CheckpointSchedule, ledger: Ledger) -> None:
    assert not plan.is_milestone(249, every=250)
    assert plan.is_milestone(253, every=250)
    assert not plan.is_milestone(253, every=0)
    plan.started(Content(5, ledger.record(), episodes=253), now=START)
    assert not plan.is_milestone(600, every=250), "one at a time"
    plan.completed(ledger)
    assert not plan.is_milestone(499, every=250)
    assert plan.is_milestone(500, every=250), "counted from the start of the run, not from the last one"


def test_a_milestone_is_passed_when_it_is_on_disk_and_does_not_hurry_a_full_one(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    assert plan.is_due(0, milestone=True, now=START)
    plan.started(Content(5, ledger.record(), episodes=253), now=START)
    plan.failed()
    assert plan.is_milestone(253, every=250)
    assert not plan.is_due(5, milestone=True, now=START + EVERY - 0.1)
    assert plan.is_due(0, milestone=True, now=START + EVERY), "games alone may have come since the saved version"


def test_the_next_is_due_an_interval_after_the_last_was_begun(plan: CheckpointSchedule, ledger: Ledger) -> None:
    plan.started(Content(5, ledger.record()), now=START + 50)
    plan.completed(ledger)
    assert not plan.is_due(6, now=START + 79)
    assert plan.is_due(6, now=START + 80)


def test_a_completed_checkpoint_makes_durable_what_it_held_when_it_was_begun(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    plan.started(Content(5, ledger.record()), now=START)
    ledger.settle("a", 4)
    assert (plan.saved_version, ledger.accounts["a"].durable) == (0, 0)
    plan.completed(ledger)
    assert (plan.saved_version, ledger.accounts["a"].durable) == (5, 3)


def test_a_failed_checkpoint_of_other_settings_is_tried_again_though_the_version_is_the_same(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    plan.hurry()
    assert plan.is_due(0, now=START)
    plan.started(Content(0, ledger.record()), now=START)
    plan.failed()
    assert plan.is_due(0, now=START + EVERY)


def test_a_failed_checkpoint_makes_nothing_durable_and_is_tried_again_when_due(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    plan.started(Content(5, ledger.record()), now=START)
    plan.failed()
    assert (plan.failures, plan.saved_version, ledger.accounts["a"].durable) == (1, 0, 0)
    assert not plan.is_due(5, now=START + 1), "a full disk is not asked again at once"
    assert plan.is_due(5, now=START + 30)
    plan.started(Content(6, ledger.record()), now=START + 30)
    plan.completed(ledger)
    assert (plan.failures, plan.saved_version, ledger.accounts["a"].durable) == (1, 6, 3)


def test_a_request_is_answered_when_the_checkpoint_is_complete(plan: CheckpointSchedule, ledger: Ledger) -> None:
    plan.ask(b"1", 10)
    plan.ask(b"2", 20)
    assert plan.is_due(0, now=START), "asked for, it is due even if nothing changed"
    plan.started(Content(5, ledger.record()), now=START)
    assert plan.completed(ledger) == [(b"1", 10), (b"2", 20)]
    assert not plan.is_due(5, now=START)


def test_a_request_during_a_write_is_answered_by_the_next_checkpoint(plan: CheckpointSchedule, ledger: Ledger) -> None:
    """A request for a checkpoint is for the present weights; the one under way is older."""
    plan.ask(b"1", 10)
    plan.started(Content(5, ledger.record()), now=START)
    plan.ask(b"2", 20)
    assert plan.completed(ledger) == [(b"1", 10)]
    assert plan.is_due(7, now=START)
    plan.started(Content(7, ledger.record()), now=START)
    assert plan.completed(ledger) == [(b"2", 20)]


def test_of_one_peer_the_newest_request_alone_is_answered(plan: CheckpointSchedule, ledger: Ledger) -> None:
    for request in range(1000):
        plan.ask(b"1", request)
    plan.started(Content(5, ledger.record()), now=START)
    assert plan.completed(ledger) == [(b"1", 999)]


def test_early_checkpoints_are_not_written_too_often(plan: CheckpointSchedule, ledger: Ledger) -> None:
    plan.hurry()
    assert plan.is_due(5, now=START)
    plan.started(Content(5, ledger.record()), now=START)
    plan.hurry()
    assert not plan.is_due(6, now=START + 10), "one is being written"
    plan.completed(ledger)
    assert not plan.is_due(6, now=START + 0.9 * HURRY_SECONDS)
    assert plan.is_due(6, now=START + HURRY_SECONDS)
    plan.started(Content(6, ledger.record()), now=START + HURRY_SECONDS)
    plan.completed(ledger)
    assert not plan.is_due(7, now=START + 10), "the hurry is over"


def early_checkpoints(*, pushes_a_second: int, budget: int, write_seconds: float, seconds: int = 60) -> float:
    """How many are begun, to how many there must be: one worker asks while half of what it can keep is full."""
    plan, ledger = CheckpointSchedule(3600.0, saved_version=0, now=0.0), Ledger(window=8)
    ledger.open("a", OPENED)
    begun, complete_at = 0, math.inf
    for hundredth in range(100 * seconds):
        now = hundredth / 100
        if hundredth % (100 // pushes_a_second) == 0:
            ledger.settle("a", ledger.accounts["a"].through + 1)
        if now >= complete_at:
            plan.completed(ledger)
            complete_at = math.inf
        account = ledger.accounts["a"]
        if hundredth % 25 == 0 and account.through - account.durable > budget / 2:
            plan.hurry_for("a", account)
        if plan.is_due(account.through, now=now):
            plan.started(Content(account.through, ledger.record()), now=now)
            begun, complete_at = begun + 1, now + write_seconds
        assert account.through - account.durable <= budget, "the worker would have to wait"
    return begun / (account.through / (budget / 2))


@pytest.mark.parametrize(("budget", "write_seconds"), [(400, 0.1), (400, 0.6), (1000, 2.0), (4000, 5.0)])
def test_repeated_hurry_during_a_write_brings_no_second_checkpoint(budget: int, write_seconds: float) -> None:
    """A large run wrote each early checkpoint twice: small pushes come on while it is written."""
    assert early_checkpoints(pushes_a_second=100, budget=budget, write_seconds=write_seconds) <= 1


def test_a_resend_buffer_that_stays_full_brings_the_next_checkpoint_at_once(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    plan.started(Content(5, ledger.record()), now=START)
    for sequence in range(4, 11):
        ledger.settle("a", sequence)
    plan.hurry_for("a", ledger.accounts["a"])
    plan.completed(ledger)
    account = ledger.accounts["a"]
    assert (account.through, account.durable) == (10, 3)
    assert plan.is_due(6, now=START + HURRY_SECONDS)


def test_a_checkpoint_that_lacks_a_worker_does_not_count_for_its_hurry(
    plan: CheckpointSchedule, ledger: Ledger
) -> None:
    plan.started(Content(5, ledger.record()), now=START)
    ledger.open("b", OPENED)
    ledger.settle("b", 1)
    plan.hurry_for("b", ledger.accounts["b"])
    plan.completed(ledger)
    assert plan.is_due(6, now=START + HURRY_SECONDS)


def test_an_early_one_is_written_even_when_the_weights_are_the_saved_ones(plan: CheckpointSchedule) -> None:
    """Discarded pushes change the ledger alone, and are kept by their workers like all others."""
    plan.hurry()
    assert plan.is_due(0, now=START)


def test_after_a_failure_the_next_is_not_as_late_as_a_long_interval_has_it(ledger: Ledger) -> None:
    plan = CheckpointSchedule(1800.0, saved_version=0, now=START)
    plan.started(Content(5, ledger.record()), now=START)
    plan.stalls(now=START + 10)
    plan.failed()
    assert not plan.is_due(6, now=START + 39)
    assert plan.is_due(6, now=START + 40)
    plan.started(Content(6, ledger.record()), now=START + 40)
    plan.completed(ledger)
    assert not plan.is_due(7, now=START + 1800)


def test_a_full_disk_is_not_tried_more_often_because_of_a_hurry(plan: CheckpointSchedule, ledger: Ledger) -> None:
    plan.started(Content(5, ledger.record()), now=START)
    assert not plan.failing
    plan.failed()
    assert plan.failing
    plan.hurry()
    assert not plan.is_due(6, now=START + 29)
    assert plan.is_due(6, now=START + 30)
    plan.started(Content(6, ledger.record()), now=START + 30)
    plan.completed(ledger)
    assert not plan.failing


def test_one_that_takes_too_long_counts_as_failed_until_it_is_written(plan: CheckpointSchedule, ledger: Ledger) -> None:
    """A frozen disk refuses nothing: workers waited for a checkpoint that never came, and nobody was told."""
    plan.ask(b"1", 10)
    plan.started(Content(5, ledger.record()), now=START)
    plan.ask(b"2", 20)
    assert not plan.stalls(now=START + STALLED_SECONDS)
    assert (plan.failing, plan.is_stalled) == (False, False)
    assert plan.stalls(now=START + STALLED_SECONDS + 1)
    assert plan.stalled() == [(b"1", 10), (b"2", 20)]
    assert (plan.failing, plan.is_stalled, plan.failures) == (True, True, 1)
    assert not plan.stalls(now=START + 1000), "it is told once"
    assert not plan.is_due(9, now=START + 1000), "nothing else can be written meanwhile"
    assert plan.completed(ledger) == []
    assert (plan.failing, plan.is_stalled, plan.saved_version, ledger.accounts["a"].durable) == (False, False, 5, 3)


def test_a_disk_that_is_slow_has_as_long_as_it_took_before(plan: CheckpointSchedule, ledger: Ledger) -> None:
    usual = 20.0
    plan.started(Content(5, ledger.record()), now=START)
    assert not plan.stalls(now=START + usual)
    plan.completed(ledger)
    plan.started(Content(6, ledger.record()), now=START + 100)
    assert not plan.stalls(now=START + 100 + SLOWER * usual)
    assert plan.stalls(now=START + 100 + SLOWER * usual + 1)
