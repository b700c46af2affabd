"""Children that die: which are started again, what is reported, and when the run ends."""

from pathlib import Path

import pytest

from common.errors import PsRlError
from rl_worker.local.local_cluster import (
    MOST_DEATHS,
    PROGRESS_SECONDS,
    Death,
    SupervisedProcess,
    endpoint_of,
    last_written,
)

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


class LeavingServer(ScriptedChild):
    """Leaves while it is waited for. What it has written while it served is removed by then."""

    def __init__(self, exit_status: int) -> None:
        super().__init__(age_seconds=1.0)
        self.exit_status = exit_status

    def wait(self, *, within_seconds: float) -> bool:
        return True

    def cause_of_death(self) -> str:
        return "ps-server: the port is taken"


def test_a_server_that_ends_its_run_at_once_has_not_failed(tmp_path: Path) -> None:
    """The limit of the run was reached before it was resumed."""
    server = LeavingServer(exit_status=0)
    assert endpoint_of(server, tmp_path / "endpoint", written_before=0) is None  # type: ignore[arg-type]


def test_a_server_that_leaves_with_an_error_has_failed_with_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    path.write_text("127.0.0.1:5555\n")  # of a server before it
    with pytest.raises(PsRlError, match="the server failed: ps-server: the port is taken"):
        endpoint_of(LeavingServer(exit_status=1), path, written_before=last_written(path))  # type: ignore[arg-type]
