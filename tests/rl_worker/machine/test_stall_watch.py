"""A trainer that stands still, and all that only looks like it: slow steps, first steps, paused processes."""

import numpy as np
import pytest

from rl_worker.environments.step_callback import StepCallback
from rl_worker.machine.stall_watch import FIRST_TIMES_LONGER, TIMES_LONGER, StallWatch, Standstill
from tests.rl_worker.scripted_environments import Game, ScriptedEnvironments

LEAST = 60.0
LOOK = 0.5  # seconds between two looks


class Trial:
    """A trainer and who looks at it, on one clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.has_pushed = False
        self.watch = StallWatch(LEAST, now=self.now)

    def passes(self, seconds: float) -> Standstill | None:
        """Time, with looks in it; what the last of them found."""
        end, found = self.now + seconds, None
        while self.now < end:
            self.now = min(self.now + LOOK, end)
            found = self.watch.look(has_pushed=self.has_pushed, now=self.now)
        return found

    def steps(self, *seconds: float) -> bool:
        """Steps that take so long; whether none was taken for a standstill."""
        moving = []
        for one in seconds:
            moving.append(self.passes(one) is None)
            self.watch.moved(now=self.now)
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


def test_an_environment_that_hangs_is_a_standstill(training: Trial) -> None:
    assert training.passes(LEAST) is None
    assert training.passes(LOOK) == Standstill(LEAST + LOOK, 1.0)
    assert training.passes(100.0) == Standstill(LEAST + LOOK + 100.0, 1.0), "it stays one"


def test_a_trainer_that_goes_on_stands_still_no_more(training: Trial) -> None:
    training.passes(100.0)
    training.watch.moved(now=training.now)
    assert training.passes(LOOK) is None
    assert training.passes(TIMES_LONGER * 100.0 - LOOK) is None, "it may do so again"
    assert training.passes(LOOK) is not None


def test_slow_environments_are_measured_by_their_own_steps() -> None:
    trial = Trial()
    trial.has_pushed = True
    assert trial.steps(*[40.0] * 5)
    assert trial.passes(TIMES_LONGER * 40.0) is None
    assert trial.passes(LOOK) is not None


def test_steps_that_grow_slower_and_slower_are_no_standstill() -> None:
    trial = Trial()
    trial.has_pushed = True
    assert trial.steps(10, 50, 400, 3000)


def test_what_is_made_before_the_first_push_has_ten_times_as_long_and_counts_for_no_later_step() -> None:
    trial = Trial()
    assert trial.steps(FIRST_TIMES_LONGER * LEAST)
    trial.has_pushed = True
    trial.steps(1.0)
    assert trial.passes(LEAST + LOOK) is not None
    never = Trial()
    assert never.passes(FIRST_TIMES_LONGER * LEAST + LOOK) is not None


@pytest.mark.parametrize("seconds", [2.0, 90.0, 3600.0])
def test_a_paused_process_does_not_stand_still(training: Trial, seconds: float) -> None:
    training.passes(10.0)
    training.paused(seconds)
    assert training.passes(LEAST - 11.0) is None
    training.watch.moved(now=training.now)
    assert training.passes(LEAST + LOOK) is None, "what it did beside the pause took long"
    assert training.passes(TIMES_LONGER * LEAST) is not None


def test_who_moves_first_after_a_pause_has_not_taken_so_long(training: Trial) -> None:
    training.paused(3600.0)
    training.watch.moved(now=training.now)
    training.passes(LOOK)
    training.watch.moved(now=training.now)
    assert training.passes(LEAST + LOOK) == Standstill(LEAST + LOOK, 1.0)


def test_environments_tell_of_each_reset_and_step() -> None:
    moves: list[int] = []
    environments = StepCallback(ScriptedEnvironments([Game((1.0, 2.0), "terminated")]), lambda: moves.append(1))
    environments.reset(3)
    assert environments.step(np.array([0])).rewards == 1.0
    assert (environments.count, environments.seeds) == (1, [3])
    assert len(moves) == 2
