"""Children that die: which are started again and when, what is reported, and when it ends."""

from pathlib import Path

import pytest

from ps_common.errors import PsRlError
from ps_common.program import supervision
from ps_common.program.supervision import BACKOFF_SECONDS, MOST_DEATHS, PROGRESS_SECONDS, Death, SupervisedProcess
from rl_cluster.supervision import SupervisedWorkers

LOG = Path("worker-0.log")


class ScriptedChild:
    """A child whose age a test sets."""

    log = LOG

    def __init__(self, age_seconds: float = 5.0) -> None:
        self.age_seconds = age_seconds


def a_process(*children: ScriptedChild) -> SupervisedProcess:
    """A process that has these children in turn, and the last one for ever."""
    next_ones = list(children) or [ScriptedChild()]
    return SupervisedProcess("worker-0", lambda: next_ones.pop(0) if len(next_ones) > 1 else next_ones[0])  # type: ignore[arg-type, return-value]


def test_a_death_is_reported_with_its_cause_and_the_child_is_replaced() -> None:
    first, second = ScriptedChild(), ScriptedChild()
    process = a_process(first, second)
    death = process.replace("ValueError: boom")
    assert death == Death("worker-0", "ValueError: boom", LOG, 1)
    assert str(death) == "worker-0 died: ValueError: boom (its log: worker-0.log); it is started again"
    assert process.child is second  # type: ignore[comparison-overlap]


def test_a_child_that_keeps_dying_ends_the_run_with_why() -> None:
    process = a_process()
    assert [process.replace("KeyError: 3").in_a_row for _ in range(MOST_DEATHS - 1)] == [1, 2]
    with pytest.raises(
        PsRlError, match=r"worker-0 died 3 times in a row.*: ValueError: boom \(its log: worker-0.log\)"
    ):
        process.replace("ValueError: boom")


def deaths_after(process: SupervisedProcess, work_seconds: float, hangs_seconds: float = 0.0) -> int:
    """A child works for so long, hangs and dies. Returns the deaths in a row without progress."""
    process.child.age_seconds = came_up = 30.0  # type: ignore[misc]
    process.note_work(0)
    for done in range(1, 5):
        process.child.age_seconds = came_up + work_seconds * (done - 1) / 3  # type: ignore[misc]
        process.note_work(done)
    process.child.age_seconds += hangs_seconds  # type: ignore[misc]
    process.note_work(4)
    return process.replace("").in_a_row


def test_a_child_that_worked_for_a_while_has_made_progress() -> None:
    process = a_process()
    for _ in range(4):
        assert deaths_after(process, PROGRESS_SECONDS) == 1
        assert deaths_after(process, PROGRESS_SECONDS - 3) == 2


def test_a_slow_start_or_a_hang_is_no_progress() -> None:
    process = a_process(ScriptedChild(age_seconds=10 * PROGRESS_SECONDS))
    assert process.replace("").in_a_row == 1
    assert deaths_after(process, 3.0, hangs_seconds=10 * PROGRESS_SECONDS) == 2
    with pytest.raises(PsRlError, match="3 times"):
        process.replace("")


class DeadChild(ScriptedChild):
    has_died, has_left = True, False

    def cause_of_death(self) -> str:
        return "ValueError: boom"


def test_a_child_that_died_again_waits_before_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now)
    children = [DeadChild(), DeadChild(), DeadChild()]
    process = a_process(*children)
    workers = SupervisedWorkers([process], stall_seconds=60.0)
    assert [death.in_a_row for death in workers.replace_dead()] == [1]
    assert process.child is children[1], "at once the first time"  # type: ignore[comparison-overlap]
    assert [death.in_a_row for death in workers.replace_dead()] == [2]
    assert workers.replace_dead() == []
    assert process.child is children[1]  # type: ignore[comparison-overlap]
    now += BACKOFF_SECONDS
    with pytest.raises(PsRlError, match="worker-0 died 3 times in a row"):
        workers.replace_dead()
    assert process.child is children[2]  # type: ignore[comparison-overlap]


def test_a_worker_that_left_in_order_stays_away() -> None:
    child = DeadChild()
    child.has_died, child.has_left = False, True
    workers = SupervisedWorkers([a_process(child)], stall_seconds=60.0)
    assert workers.replace_dead() == []
    assert workers.have_left
