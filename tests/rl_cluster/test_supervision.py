"""Children that die: which are started again and when, what is reported, and when it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import PsRlError
from ps_common.program import supervision
from ps_common.program.child_processes import Child
from ps_common.program.reasons import Reason
from ps_common.program.supervision import (
    BACKOFF_SECONDS,
    MOST_DEATHS,
    SupervisedProcess,
)
from rl_cluster.workers import SupervisedWorkers

LOG = Path("worker-0.log")


class ScriptedChild:
    """A child whose age and end a test sets."""

    log = LOG
    exit_status: int | None = None
    has_left = is_over = was_killed = False
    reason: Reason | None = None

    def __init__(self, age_seconds: float = 5.0) -> None:
        self.age_seconds = age_seconds

    def cause_of_death(self) -> str:
        return "ValueError: boom"


class FailedChild(ScriptedChild):
    exit_status = 1


class RefusedChild(FailedChild):
    reason = Reason("refused", "ValueError: boom")


class KilledChild(ScriptedChild):
    exit_status, was_killed = -9, True


class LeftChild(ScriptedChild):
    """It has left in order, though nobody here has asked it to."""

    exit_status, has_left, was_killed = 0, True, True


def started_in_turn(*children: ScriptedChild) -> Callable[..., Child]:
    """What starts these children in turn, and the last one for ever."""
    next_ones = list(children) or [ScriptedChild()]
    return lambda *_: next_ones.pop(0) if len(next_ones) > 1 else next_ones[0]  # type: ignore[return-value]


def a_process(*children: ScriptedChild, **how: Any) -> SupervisedProcess:
    return SupervisedProcess("worker-0", started_in_turn(*children), **how)


def test_a_death_is_reported_with_its_cause_and_the_child_is_replaced() -> None:
    first, second = ScriptedChild(), ScriptedChild()
    process = a_process(first, second)
    death = process.replace("ValueError: boom")
    assert death == "worker-0 died: ValueError: boom (its log: worker-0.log); it is started again"
    assert process.child is second  # type: ignore[comparison-overlap]


def test_a_child_that_keeps_dying_ends_the_run_with_why() -> None:
    process = a_process()
    for _ in range(MOST_DEATHS - 1):
        process.replace("KeyError: 3")
    with pytest.raises(
        PsRlError, match=r"worker-0 died 3 times in a row.*: ValueError: boom \(its log: worker-0.log\)"
    ):
        process.replace("ValueError: boom")


def test_a_child_that_would_fail_again_is_not_started_again() -> None:
    process = a_process(RefusedChild(), ScriptedChild())
    with pytest.raises(
        PsRlError, match=r"^worker-0 ended, and would again: ValueError: boom \(its log: worker-0.log\)$"
    ):
        process.look()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass."""
    now = [1000.0]
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def test_a_child_that_died_again_waits_before_it_is_started(clock: Callable[[float], None]) -> None:
    children = [FailedChild(), FailedChild(), FailedChild()]
    workers = SupervisedWorkers(["worker-0"], started_in_turn(*children), stall_seconds=60.0)
    (process,) = workers.processes
    assert len(workers.replace_dead(None)) == 1
    assert process.child is children[1], "at once the first time"  # type: ignore[comparison-overlap]
    assert (len(workers.replace_dead(None)), process.deaths) == (1, 2)
    assert workers.replace_dead(None) == []
    assert process.child is children[1]  # type: ignore[comparison-overlap]
    clock(BACKOFF_SECONDS)
    with pytest.raises(PsRlError, match="worker-0 died 3 times in a row"):
        workers.replace_dead(None)
    assert process.child is children[2]  # type: ignore[comparison-overlap]


def test_a_worker_that_left_in_order_stays_away() -> None:
    workers = SupervisedWorkers(["worker-0"], started_in_turn(LeftChild()), stall_seconds=60.0)
    assert workers.replace_dead(None) == []
    assert workers.have_left


def test_another_program_that_left_though_nobody_asked_it_to_is_started_again() -> None:
    """Its node is preempted, and sends SIGTERM."""
    process = a_process(LeftChild(), ScriptedChild())
    assert process.look() is not None
    assert process.child.exit_status is None


def test_a_program_that_must_come_up_is_not_started_again_when_it_fails_at_first() -> None:
    with pytest.raises(PsRlError, match=r"worker-0 failed: ValueError: boom"):
        a_process(FailedChild(), must_come_up=True).look()
    process = a_process(KilledChild(), FailedChild(), ScriptedChild(), must_come_up=True)
    assert process.look(), "it is not to blame"
    assert process.look()
