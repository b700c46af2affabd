"""Children that die: which are started again, what is told of them, and when the run has to end."""

from pathlib import Path

import pytest

from common.errors import PsRlError
from rl_worker.local_cluster import MOST_DEATHS, PROGRESS_SECONDS, Death, Place

LOG = Path("worker-0.log")


class ScriptedChild:
    """Dies at once, with these words, at this age."""

    log = LOG

    def __init__(self, words: str = "ValueError: boom", age_seconds: float = 5.0) -> None:
        self.words = words
        self.age_seconds = age_seconds

    def last_words(self) -> str:
        return self.words


def a_place(*children: ScriptedChild) -> Place:
    """Its children in turn; the last one is there for good."""
    waiting = list(children) or [ScriptedChild()]
    return Place("worker-0", lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0])  # type: ignore[arg-type, return-value]


def test_a_death_is_told_with_its_last_words_and_another_child_takes_the_place() -> None:
    first, second = ScriptedChild("ValueError: boom"), ScriptedChild("KeyError: 3")
    place = a_place(first, second)
    death = place.replace()
    assert death == Death("worker-0", "ValueError: boom", LOG, 1)
    assert str(death) == "worker-0 died: ValueError: boom (its log: worker-0.log); it is started again"
    assert place.child is second  # type: ignore[comparison-overlap]


def test_a_child_that_keeps_dying_ends_the_run_with_its_last_words() -> None:
    place = a_place()
    assert [place.replace().in_a_row for _ in range(MOST_DEATHS - 1)] == [1, 2]
    with pytest.raises(
        PsRlError, match=r"worker-0 died 3 times in a row.*: ValueError: boom \(its log: worker-0.log\)"
    ):
        place.replace()


def lives(place: Place, work_seconds: float) -> int:
    """A life that works for so long, and how many there were in a row without progress after it."""
    place.child.age_seconds = 30.0  # type: ignore[misc]  # it took so long to come up
    place.works()
    place.child.age_seconds = 30.0 + work_seconds  # type: ignore[misc]
    place.works()
    return place.replace().in_a_row


def test_a_life_that_worked_for_a_while_was_progress() -> None:
    place = a_place()
    for _ in range(4):
        assert lives(place, PROGRESS_SECONDS) == 1
        assert lives(place, PROGRESS_SECONDS - 1) == 2


def test_to_come_up_slowly_is_no_progress() -> None:
    place = a_place(ScriptedChild(age_seconds=10 * PROGRESS_SECONDS))
    assert [place.replace().in_a_row for _ in range(2)] == [1, 2]
    with pytest.raises(PsRlError, match="3 times"):
        place.replace()
