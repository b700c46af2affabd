"""The row of a track: five runs, of which some may not have come to the mark."""

from pathlib import Path

import pytest

from benchmarks.learning.programs import Trained
from benchmarks.learning.speedrun import TRACKS, Flags, main, row
from ps_common.errors import PsRlError


def a_run(minutes: float | None, mean: float | None = 12.25) -> Trained:
    return Trained(
        folder=Path(),
        steps=1_000_000,
        minutes=minutes or 15.0,
        start_minutes=0.1,
        minutes_to_target=minutes,
        steps_per_second=2000.0,
        mean_return_100=mean,
    )


def test_the_median_counts_a_run_that_did_not_come_to_the_mark_as_the_slowest() -> None:
    runs = [a_run(minutes) for minutes in (3.0, None, 2.0, 9.0, None)]
    median, each, steps, *_ = (cell.strip() for cell in row(runs, commit="abc", load=2.0).split("|")[1:])
    assert median == "9.00"
    assert each == "3.00, not in 15.0 (12.2), 2.00, 9.00, not in 15.0 (12.2)"
    assert steps.count("1,000,000") == len(runs)
    assert row([*runs[1:], a_run(None)], commit="abc", load=2.0).startswith("| not |")
    assert "not in 15.0 (no 100 games)" in row([a_run(None, mean=None)], commit="abc", load=2.0)


def test_a_track_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(PsRlError, match=f"--track chess: there are {', '.join(TRACKS)}"):
        main(Flags(track="chess"))
