from hypothesis import given
from hypothesis import strategies as st

from ps_common.meters import RollingMean
from ps_server.machine.allowances import RateLimits
from ps_server.state.progress import Rate

NUMBERS = st.integers(-1000, 1000)  # whole, so that sums are exact


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.integers(1, 5))
def test_a_rolling_mean_is_that_of_the_newest_values(values: list[int], size: int) -> None:
    mean = RollingMean(size)
    for count, value in enumerate(values, start=1):
        mean.add(value)
        newest = values[max(0, count - size) : count]
        assert mean.mean == sum(newest) / len(newest)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 50)), min_size=1, max_size=15), st.integers(1, 5))
def test_a_rate_is_counted_from_the_oldest_mark_of_the_window(growth: list[tuple[int, int]], later: int) -> None:
    rate = Rate(window_seconds=10.0)
    now, counter, marks = 100, 0, []
    for seconds, count in growth:
        now, counter = now + seconds, counter + count
        rate.mark(counter, now=now)
        marks.append((now, counter))
    # The window ends at the newest mark.
    then, before = next(mark for mark in marks if marks[-1][0] - mark[0] <= 10)
    assert rate.per_second(counter + 3, now=now + later) == (counter + 3 - before) / (now + later - then)


def test_limits_that_are_full_again_are_forgotten_and_no_more_than_the_most_are_kept() -> None:
    limits = RateLimits(3)
    allowed = [limits.allows("a", at_once=2, per_second=0.1, now=0.0) for _ in range(3)]
    assert allowed == [True, True, False]
    assert limits.allows("b", at_once=2, per_second=0.1, now=19.0)
    assert len(limits) == 2, "a has 1.9 of 2"
    assert limits.allows("b", at_once=2, per_second=0.1, now=20.0)
    assert len(limits) == 1, "a is as good as new"
    for who in "cdefg":
        limits.allows(who, at_once=2, per_second=0.1, now=20.0)
    assert len(limits) == 3
