"""The curves of games and the page of Hopper and HalfCheetah: figures are what the games say."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from benchmarks.dear.curves import GAMES, Game, Point, curve
from benchmarks.dear.mujoco_page import OURS, THEIRS, Row, page_of

LENGTHS = st.lists(st.tuples(st.integers(1, 50), st.integers(-300, 300)), max_size=40)


def games_from(lengths: list[tuple[int, int]]) -> list[Game]:
    """Games one after another, ten steps a minute."""
    ends = [sum(length for length, _ in lengths[: number + 1]) for number in range(len(lengths))]
    return [Game(end, end / 10, float(score)) for end, (_, score) in zip(ends, lengths, strict=True)]


@given(LENGTHS, st.integers(1, 60))
def test_a_point_is_the_mean_of_the_ten_games_before_it(lengths: list[tuple[int, int]], every: int) -> None:
    games = games_from(lengths)
    steps = games[-1].steps if games else every
    for point in curve(games, start_minutes=0.0, end=Point(steps, steps / 10, None), every=every):
        before = [game.score for game in games if game.steps <= point.steps]
        assert point.score == (pytest.approx(mean(before[-GAMES:])) if len(before) >= GAMES else None)
        assert point.minutes == pytest.approx(point.steps / 10, abs=1e-3)


def runs(side: str, scores: list[float]) -> list[Row]:
    return [
        Row(
            side=side, environment="Hopper-v5", seed=seed, steps=100_000, learning_starts=10_000, threads=1,
            minutes=12.0, curve=[Point(50_000, 6.0, 0.0), Point(100_000, 12.0, score)], greedy=[score],
            busy_before=0.0, date="today",
        )
        for seed, score in enumerate(scores)
    ]  # fmt: skip


def test_a_side_is_ahead_where_its_worst_run_is_better_than_the_others_best() -> None:
    for ours, theirs, verdict in [
        ([3.0, 4.0], [1.0, 2.0], f"{OURS} is ahead"),
        ([1.0, 2.0], [3.0, 4.0], f"{THEIRS} is ahead"),
        ([1.0, 3.0], [2.0, 4.0], "no difference"),
    ]:
        page = page_of(runs(OURS, ours) + runs(THEIRS, theirs))
        at_steps, at_minutes = (
            page.partition(f"At {place}: ")[2].partition("\n\n")[0] for place in ("100,000 steps", "10 minutes")
        )
        assert verdict in at_steps
        assert verdict in at_minutes


def test_a_mark_that_one_run_has_not_reached_compares_nothing() -> None:
    (short,) = runs(THEIRS, [1.0])
    short = structs.replace(short, curve=short.curve[:1])
    page = page_of([*runs(OURS, [5.0, 7.0]), *runs(THEIRS, [1.0]), short])
    assert "At 50,000 steps: " in page
    assert "| 100,000 | 6 (5 to 7) | – |" in page
