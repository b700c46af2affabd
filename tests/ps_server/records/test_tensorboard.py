"""Summaries for TensorBoard: made of the right reports, under the right tags, and no more often than a week allows."""

from pathlib import Path

from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import TENSORBOARD
from ps_server.records.tensorboard import POINT_MINUTES, Summaries, SummaryPoints
from tests.ps_server.records.test_episodes import a_report, some

METERS = {
    "loss": 1.0, "policy_loss": 2.0, "value_loss": 3.0, "entropy": 4.0, "value": 5.0,
    "gradient_norm": 6.0, "weight_norm": 7.0, "steps_per_second": 100.0, "collect_share": 0.5,
}  # fmt: skip


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


def test_a_week_takes_no_more_than_150_megabytes(tmp_path: Path) -> None:
    """An hour of reports, ten a second, each with everything."""
    summaries = Summaries(tmp_path)
    for tick in range(36_000):
        summaries.add(a_report(minutes=tick / 600, meters=METERS, episodes=some(tick % 21)))
    summaries.close()
    written = sum(path.stat().st_size for path in (tmp_path / TENSORBOARD).iterdir())
    assert written * 24 * 7 < 150e6
