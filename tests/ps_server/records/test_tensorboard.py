"""Summaries for TensorBoard: made of the right reports, under the right tags, and no more often than a week allows."""

from pathlib import Path

import pytest

from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import TENSORBOARD
from ps_server.records.tensorboard import (
    POINT_MINUTES,
    RETURNS,
    STALENESS,
    Summaries,
    SummaryHistograms,
    SummaryPoints,
)
from tests.ps_server.records.test_episodes import a_report, some

METERS = {
    "loss": 1.0, "policy_loss": 2.0, "value_loss": 3.0, "entropy": 4.0, "value": 5.0,
    "gradient_norm": 6.0, "weight_norm": 7.0, "steps_per_second": 100.0, "collect_share": 0.5,
}  # fmt: skip


def test_numbers_have_these_tags() -> None:
    made = SummaryPoints()
    made.add(a_report(minutes=1.0, meters=METERS, episodes=(Episode(20.0, 200),)))
    assert made.add(a_report(minutes=2.0, meters=METERS)) == {
        "Perf/Reward": 20.0,
        "Perf/Length": 200.0,
        "Perf/Value": 5.0,
        "Losses/Value Loss": 3.0,
        "Losses/Policy Loss": 2.0,
        "Losses/Entropy": 4.0,
        "Losses/Grad Norm": 6.0,
        "Losses/Var Norm": 7.0,
    }


def test_a_point_is_the_mean_of_what_was_reported_since_the_last() -> None:
    made = SummaryPoints()
    for share, entropy, score in ((0, 1.0, 10.0), (0.5, 2.0, 20.0), (0.9, 3.0, 60.0)):
        report = a_report(minutes=1 + share * POINT_MINUTES, meters={"entropy": entropy}, episodes=(Episode(score, 8),))
        assert made.add(report) == {}
    point = made.add(a_report(minutes=1 + POINT_MINUTES, meters={"entropy": 6.0}))
    assert point == {"Losses/Entropy": 3.0, "Perf/Reward": 30.0, "Perf/Length": 8.0}
    assert made.add(a_report(minutes=1 + 1.9 * POINT_MINUTES, meters={"entropy": 9.0})) == {}
    made.add(a_report(minutes=1 + 1.95 * POINT_MINUTES, meters={"entropy": 11.0}))
    assert made.rest() == {"Losses/Entropy": 10.0}, "no game ended"
    assert made.rest() == {}


def test_a_fast_run_has_no_more_than_a_point_in_two_seconds() -> None:
    """A thousand updates a second made ten points a second: two gigabytes a week."""
    made = SummaryPoints()
    reports = [a_report(minutes=tick / 600, meters={"entropy": float(tick)}) for tick in range(1, 102)]
    seen = [point["Losses/Entropy"] for report in reports if (point := made.add(report))]
    assert len(seen) == 5
    assert seen[1] == pytest.approx(sum(range(22, 42)) / 20), "rows in between are in the next one's mean"


def test_histograms_have_every_return_and_staleness_since_the_last() -> None:
    made = SummaryHistograms()
    assert made.add(a_report(minutes=7.0, episodes=some(1.0, 2.0), staleness=(1, 2))) == {}
    assert made.add(a_report(minutes=7.25, episodes=some(3.0))) == {}
    assert made.add(a_report(minutes=7.5, staleness=(3,))) == {RETURNS: [1.0, 2.0, 3.0], STALENESS: [1, 2, 3]}
    assert made.add(a_report(minutes=7.75, episodes=some(4.0))) == {}
    assert made.add(a_report(minutes=8.0)) == {RETURNS: [4.0]}
    assert made.add(a_report(minutes=9.0)) == {}
    assert made.rest() == {}


def test_a_week_takes_no_more_than_150_megabytes(tmp_path: Path) -> None:
    """An hour of reports, ten a second, each with everything."""
    summaries = Summaries(tmp_path)
    for tick in range(36_000):
        summaries.add(a_report(minutes=tick / 600, meters=METERS, episodes=some(tick % 21), staleness=(tick % 7,)))
    summaries.close()
    written = sum(path.stat().st_size for path in (tmp_path / TENSORBOARD).iterdir())
    assert written * 24 * 7 < 150e6
