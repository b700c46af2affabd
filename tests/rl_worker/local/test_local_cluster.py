"""Children that die: which are started again, what is told of them, and when the run has to end."""

from pathlib import Path

import pytest

from common.errors import PsRlError
from rl_worker.local.local_cluster import MOST_DEATHS, PROGRESS_SECONDS, Death, Place

LOG = Path("worker-0.log")


class ScriptedChild:
    """Of an age that a test sets."""

    log = LOG

    def __init__(self, age_seconds: float = 5.0) -> None:
        self.age_seconds = age_seconds


def a_place(*children: ScriptedChild) -> Place:
    """Its children in turn; the last one is there for good."""
    waiting = list(children) or [ScriptedChild()]
    return Place("worker-0", lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0])  # type: ignore[arg-type, return-value]


def test_a_death_is_told_with_why_and_another_child_takes_the_place() -> None:
    first, second = ScriptedChild(), ScriptedChild()
    place = a_place(first, second)
    death = place.replace("ValueError: boom")
    assert death == Death("worker-0", "ValueError: boom", LOG, 1)
    assert str(death) == "worker-0 died: ValueError: boom (its log: worker-0.log); it is started again"
    assert place.child is second  # type: ignore[comparison-overlap]


def test_a_child_that_keeps_dying_ends_the_run_with_why() -> None:
    place = a_place()
    assert [place.replace("KeyError: 3").in_a_row for _ in range(MOST_DEATHS - 1)] == [1, 2]
    with pytest.raises(
        PsRlError, match=r"worker-0 died 3 times in a row.*: ValueError: boom \(its log: worker-0.log\)"
    ):
        place.replace("ValueError: boom")


def lives(place: Place, work_seconds: float, hangs_seconds: float = 0.0) -> int:
    """A life that works for so long and then hangs; how many there were in a row without progress after it."""
    place.child.age_seconds = came_up = 30.0  # type: ignore[misc]
    place.works(0)
    for done in range(1, 5):
        place.child.age_seconds = came_up + work_seconds * (done - 1) / 3  # type: ignore[misc]
        place.works(done)
    place.child.age_seconds += hangs_seconds  # type: ignore[misc]
    place.works(4)
    return place.replace("").in_a_row


def test_a_life_that_worked_for_a_while_was_progress() -> None:
    place = a_place()
    for _ in range(4):
        assert lives(place, PROGRESS_SECONDS) == 1
        assert lives(place, PROGRESS_SECONDS - 3) == 2


def test_to_come_up_slowly_or_to_hang_is_no_progress() -> None:
    place = a_place(ScriptedChild(age_seconds=10 * PROGRESS_SECONDS))
    assert place.replace("").in_a_row == 1
    assert lives(place, 3.0, hangs_seconds=10 * PROGRESS_SECONDS) == 2
    with pytest.raises(PsRlError, match="3 times"):
        place.replace("")
