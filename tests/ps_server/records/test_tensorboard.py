"""Summaries for TensorBoard: made of the right reports, under the right tags, and no more often than a week allows."""

from pathlib import Path
from typing import Any

import pytest

from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import GIFS, TENSORBOARD, gif_name
from ps_common.settings.run_spec import Records, RunSpec
from ps_server.records.tensorboard import (
    GAME,
    GIF_MINUTES,
    MOST_GIF_BYTES,
    RETURNS,
    STALENESS,
    STYLES,
    GameGifs,
    Summaries,
    SummaryHistograms,
    SummaryPoints,
)
from tests.ps_server.records.test_episodes import a_report, some
from tests.ps_server.records.test_event_file import a_gif
from tests.rows import row

METERS = {
    "loss": 1.0, "policy_loss": 2.0, "value_loss": 3.0, "entropy": 4.0, "value": 5.0,
    "gradient_norm": 6.0, "weight_norm": 7.0, "steps_per_second": 100.0, "collect_share": 0.5,
}  # fmt: skip


def points(style: str, **fields: Any) -> SummaryPoints:
    return SummaryPoints(STYLES[style], **({"every_updates": 10, "frames_per_step": 4} | fields))


def test_a_point_is_the_mean_of_what_was_reported_since_the_last() -> None:
    made = points("perf")
    for updates, entropy, score in ((1, 1.0, 10.0), (5, 2.0, 20.0), (10, 3.0, 60.0)):
        assert made.add(a_report(updates=updates, meters={"entropy": entropy}, episodes=(Episode(score, 8),))) == {}
    point = made.add(a_report(updates=12, meters={"entropy": 6.0}))
    assert point == {"Losses/Entropy": 3.0, "Perf/Reward": 30.0, "Perf/Length": 8.0}
    assert made.add(a_report(updates=21, minutes=1.0, meters={"entropy": 9.0})) == {}
    assert made.add(a_report(updates=22, minutes=1.0, meters={"entropy": 11.0})) == {"Losses/Entropy": 10.0}, (
        "no game ended"
    )
    assert made.rest() == {}


def test_a_fast_run_has_no_more_than_a_point_in_two_seconds() -> None:
    """A thousand updates a second made ten points a second: two gigabytes a week."""
    made = points("perf")
    reports = [
        a_report(updates=100 * tick, minutes=tick / 600, meters={"entropy": float(tick)}) for tick in range(1, 101)
    ]
    seen = [point["Losses/Entropy"] for report in reports if (point := made.add(report))]
    assert len(seen) == 5
    assert seen[1] == pytest.approx(sum(range(3, 23)) / 20), "rows in between are in the next one's mean"


def test_the_rest_is_a_point_of_the_last_reports() -> None:
    made = points("perf")
    made.add(a_report(updates=1, meters={"entropy": 2.0}, episodes=(Episode(20.0, 200),)))
    made.add(a_report(updates=2, meters={"entropy": 4.0}))
    assert made.rest() == {"Losses/Entropy": 3.0, "Perf/Reward": 20.0, "Perf/Length": 200.0}
    assert made.rest() == {}


def test_the_style_model_counts_the_first_worker_and_the_style_perf_all() -> None:
    for style, tag, mean in (("model", "model/entropy", 1.0), ("perf", "Losses/Entropy", 2.0)):
        made = points(style)
        made.add(a_report(updates=0, meters={"entropy": 1.0}))
        made.add(a_report(is_first=False, updates=5, meters={"entropy": 4.0}))
        assert made.add(a_report(updates=10, meters={"entropy": 1.0})) == {tag: mean}


def test_histograms_have_every_return_and_staleness_since_the_last() -> None:
    made = SummaryHistograms()
    assert made.add(a_report(minutes=7.0, episodes=some(1.0, 2.0), staleness=(1, 2))) == {}
    assert made.add(a_report(is_first=False, minutes=7.25, episodes=some(3.0))) == {}
    assert made.add(a_report(minutes=7.5, staleness=(3,))) == {RETURNS: [1.0, 2.0, 3.0], STALENESS: [1, 2, 3]}
    assert made.add(a_report(minutes=7.75, episodes=some(4.0))) == {}
    assert made.add(a_report(minutes=8.0)) == {RETURNS: [4.0]}
    assert made.add(a_report(minutes=9.0)) == {}
    assert made.rest() == {}


def left_gif(folder: Path, global_steps: int, content: bytes | None = None) -> bytes:
    (folder / GIFS).mkdir(exist_ok=True)
    gif = a_gif(width=global_steps) if content is None else content
    (folder / GIFS / gif_name(global_steps)).write_bytes(gif)
    return gif


def test_the_newest_gif_is_added_once_an_hour(tmp_path: Path) -> None:
    gifs = GameGifs(tmp_path)
    assert gifs.due(minutes=0.0) == {}
    left_gif(tmp_path, 9)
    second = left_gif(tmp_path, 10)
    assert gifs.due(minutes=1.0) == {GAME: second}
    third = left_gif(tmp_path, 11)
    assert gifs.due(minutes=1.0 + GIF_MINUTES / 2) == {}
    assert gifs.due(minutes=1.0 + GIF_MINUTES) == {GAME: third}
    assert gifs.due(minutes=1.0 + 2 * GIF_MINUTES) == {}, "no newer one"
    assert gifs.rest() == {}


def test_a_gif_that_is_incomplete_or_huge_waits(tmp_path_factory: pytest.TempPathFactory) -> None:
    for content in [b"", b"GIF8", a_gif()[:-1], b"not a GIF;", b"GIF8" + bytes(MOST_GIF_BYTES) + b";"]:
        with row(content):
            tmp_path = tmp_path_factory.mktemp("row")
            gifs = GameGifs(tmp_path)
            left_gif(tmp_path, 9, content)
            assert gifs.due(minutes=0.0) == {}
            complete = left_gif(tmp_path, 9)
            assert gifs.due(minutes=0.1) == {GAME: complete}


def test_a_week_takes_no_more_than_150_megabytes_without_gifs(tmp_path: Path) -> None:
    """An hour of reports, ten a second, each with everything."""
    summaries = Summaries(tmp_path, RunSpec(records=Records(summary_every_updates=1)))
    for tick in range(36_000):
        summaries.add(
            a_report(updates=tick, minutes=tick / 600, meters=METERS, episodes=some(tick % 21), staleness=(tick % 7,))
        )
    summaries.close()
    written = sum(path.stat().st_size for path in (tmp_path / TENSORBOARD).iterdir())
    assert written * 24 * 7 < 150e6
