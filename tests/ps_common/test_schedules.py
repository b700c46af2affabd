from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.meters import linear
from tests.rows import row

WEIGHTS = st.floats(0, 1)


@given(st.integers(0, 2**62), WEIGHTS, WEIGHTS, st.integers(1, 2**62))
def test_a_linear_schedule_is_a_straight_line_that_ends(step: int, initial: float, final: float, over: int) -> None:
    share = min(Fraction(step, over), Fraction(1))
    exact = float(Fraction(initial) * (1 - share) + Fraction(final) * share)
    assert linear(step, initial=initial, final=final, over=over) == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_a_linear_schedule_at_some_steps() -> None:
    for step, value in [(0, 8.0), (25, 6.5), (50, 5.0), (100, 2.0), (101, 2.0), (10**18, 2.0)]:
        with row(step, value):
            assert linear(step, initial=8.0, final=2.0, over=100) == value


@pytest.mark.parametrize("step", [0, 1, 10**18])
def test_a_schedule_over_no_steps_stays_where_it_began(step: int) -> None:
    assert linear(step, initial=7e-4, final=0.0, over=0) == 7e-4


def test_a_line_may_begin_later() -> None:
    values = [linear(steps, initial=1.0, final=0.0, over=300, start=100) for steps in (0, 100, 200, 300, 400)]
    assert values == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_a_line_without_length_is_a_step() -> None:
    assert [linear(steps, initial=1.0, final=0.0, over=100, start=200) for steps in (0, 99, 100, 300)] == [1, 1, 0, 0]
