"""The growth of a counter a second."""

from hypothesis import given
from hypothesis import strategies as st

from ps_server.state.progress import Rate


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
