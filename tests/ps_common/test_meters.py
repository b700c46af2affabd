from hypothesis import given
from hypothesis import strategies as st

from ps_common.meters import RollingMean

NUMBERS = st.integers(-1000, 1000)  # whole, so that sums are exact


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.integers(1, 5))
def test_a_rolling_mean_is_that_of_the_newest_values(values: list[int], size: int) -> None:
    mean = RollingMean(size)
    for count, value in enumerate(values, start=1):
        mean.add(value)
        newest = values[max(0, count - size) : count]
        assert mean.mean == sum(newest) / len(newest)
