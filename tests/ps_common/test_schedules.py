from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.meters import linear

WEIGHTS = st.floats(0, 1)


@given(st.integers(0, 2**62), WEIGHTS, WEIGHTS, st.integers(1, 2**62))
def test_a_linear_schedule_is_a_straight_line_that_ends(step: int, initial: float, final: float, over: int) -> None:
    share = min(Fraction(step, over), Fraction(1))
    exact = float(Fraction(initial) * (1 - share) + Fraction(final) * share)
    assert linear(step, initial=initial, final=final, over=over) == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_a_line_may_begin_later() -> None:
    values = [linear(steps, initial=1.0, final=0.0, over=300, start=100) for steps in (0, 100, 200, 300, 400)]
    assert values == [1.0, 1.0, 0.5, 0.0, 0.0]
