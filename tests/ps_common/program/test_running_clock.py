"""A clock without the pauses of its process."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.program.running_clock import MOST_SECONDS, RunningClock

STEPS = st.lists(st.integers(0, int(1000 * MOST_SECONDS)).map(lambda number: number / 1000), max_size=20)
PAUSES = st.floats(MOST_SECONDS, 1e7)


def readings(steps: list[float]) -> tuple[list[float], float]:
    """What a clock shows that is read after each of these seconds, and what it left out."""
    real = iter(accumulate([5.0, *steps]))
    clock, left_out = RunningClock(lambda: next(real)), [0.0]
    clock.on_pause = lambda seconds, now: left_out.append(seconds)
    began = clock._now
    return [clock.now() - began for _ in steps], sum(left_out)


@given(STEPS)
def test_while_the_process_runs_it_is_any_other_clock(steps: list[float]) -> None:
    shown, left_out = readings(steps)
    assert shown == pytest.approx(list(accumulate(steps)), abs=1e-6)
    assert left_out == 0


@given(STEPS, STEPS, PAUSES)
def test_a_pause_of_any_length_anywhere_is_as_the_shortest(
    before: list[float], after: list[float], pause: float
) -> None:
    shown, left_out = readings([*before, pause, *after])
    assert shown == pytest.approx(readings([*before, MOST_SECONDS, *after])[0], abs=1e-6)
    assert left_out == pytest.approx(pause - MOST_SECONDS, abs=1e-6)
