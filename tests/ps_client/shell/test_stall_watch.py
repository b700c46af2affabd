"""A stalled trainer, and what only looks like one: slow steps, first steps, paused processes."""

import pytest

from ps_client.shell.stall_watch import FIRST_TIMES_LONGER, TIMES_LONGER, StallWatch

LEAST = 60.0
CHECK = 0.5  # seconds between two checks


class Trial:
    """A trainer and its watch, on one clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.has_pushed = False
        self.watch = StallWatch(LEAST, now=self.now)

    def passes(self, seconds: float) -> float:
        """Time passes, with checks. Returns the seconds of a stall at the last one, or 0."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + CHECK, end)
            self.watch.check(has_pushed=self.has_pushed, now=self.now)
        return self.watch.stalled_seconds

    def steps(self, *seconds: float) -> bool:
        """Steps that take so long. Returns whether none was taken for a stall."""
        moving = []
        for one in seconds:
            moving.append(not self.passes(one))
            self.watch.progressed()
        return all(moving)

    def paused(self, seconds: float) -> None:
        """The process does not run."""
        self.now += seconds


@pytest.fixture
def training() -> Trial:
    """A worker that has trained for a while, with steps of up to a second."""
    trial = Trial()
    trial.has_pushed = True
    assert trial.steps(0.5, 1.0, 0.25)
    return trial


def test_an_environment_that_hangs_is_a_stall(training: Trial) -> None:
    assert not training.passes(LEAST)
    assert training.passes(CHECK) == LEAST + CHECK
    assert training.passes(100.0) == LEAST + CHECK + 100.0, "it stays one"


def test_slow_environments_are_measured_by_their_own_steps() -> None:
    trial = Trial()
    trial.has_pushed = True
    assert trial.steps(*[40.0] * 5)
    assert not trial.passes(TIMES_LONGER * 40.0)
    assert trial.passes(CHECK)


def test_steps_before_the_first_push_may_take_ten_times_as_long_and_count_for_no_later_step() -> None:
    trial = Trial()
    assert trial.steps(FIRST_TIMES_LONGER * LEAST)
    trial.has_pushed = True
    trial.steps(1.0)
    assert trial.passes(LEAST + CHECK)
    never = Trial()
    assert never.passes(FIRST_TIMES_LONGER * LEAST + CHECK)


@pytest.mark.parametrize("seconds", [2.0, 90.0, 3600.0])
def test_a_paused_process_is_not_stalled(training: Trial, seconds: float) -> None:
    training.passes(10.0)
    training.paused(seconds)
    assert not training.passes(LEAST - 11.0)
    training.watch.progressed()
    assert not training.passes(LEAST + CHECK), "the step took long even without the pause"
    assert training.passes(TIMES_LONGER * LEAST)
