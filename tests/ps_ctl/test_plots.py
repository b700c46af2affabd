"""Learning curves from run folders, intact or damaged."""

import os
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from ps_common.errors import SettingsError
from ps_common.protocol.messages import Episode
from ps_ctl.plots import plot_runs, run_folders
from ps_server.records.history import EpisodesFile, MetricsFiles
from tests.ps_server.records.test_episodes import a_report
from tests.ps_server.records.test_metrics import a_status

RETURNS = [-21.0, -20.0, 5.0]


def a_run(folder: Path, returns: list[float]) -> Path:
    """A run folder with a row of metrics, and these games, 40 steps apart, in one report after half a minute."""
    folder.mkdir(parents=True)
    metrics = MetricsFiles(folder)
    metrics.close(a_status(mean_return_100=returns[-1] if returns else None), time_of_day=0.0)
    episodes = EpisodesFile(folder)
    for number, value in enumerate(returns, 1):
        episodes.add(a_report(episodes=(Episode(value, 10, 40 * number),), first_episode=number))
    episodes.close()
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(label, x, y) of the lines that the legend names: for each panel, those of each run."""
    lines: list[Any] = []
    plot = Axes.plot

    def watched(axes: Axes, x: list[float], y: list[float], **options: Any) -> Any:
        lines.append((options.get("label"), list(x), list(y)))
        return plot(axes, x, y, **options)

    monkeypatch.setattr(Axes, "plot", watched)
    return lines


def test_each_run_is_a_line_over_steps_minutes_and_episodes(tmp_path: Path, drawn: list[Any]) -> None:
    one, other = a_run(tmp_path / "one", RETURNS), a_run(tmp_path / "other", [3.0])
    plot_runs([one, other], tmp_path / "curve.png")
    means = pytest.approx([-21.0, -20.5, -12.0])
    assert drawn[::2] == [("one", [40, 80, 120], means), ("one", [0.5] * 3, means), ("one", [1, 2, 3], means)]
    assert drawn[1::2] == [("other", [40], [3.0]), ("other", [0.5], [3.0]), ("other", [1], [3.0])]


def test_the_mean_is_that_of_the_last_hundred_games(tmp_path: Path, drawn: list[Any]) -> None:
    """Of fewer at the beginning; where each of the last hundred games came to 500, so does their mean."""
    plot_runs([a_run(tmp_path / "run", [10.0, 20.0, 0.0, *[500.0] * 100])], tmp_path / "curve.png")
    _, episodes, means = drawn[2]
    assert episodes == list(range(1, 104))
    assert means[:4] == pytest.approx([10.0, 15.0, 10.0, 132.5])
    assert means[-2:] == pytest.approx([495.0, 500.0])


def test_games_of_several_workers_are_drawn_in_the_order_of_their_steps(tmp_path: Path, drawn: list[Any]) -> None:
    run = a_run(tmp_path / "run", [])
    episodes = EpisodesFile(run)
    episodes.add(a_report(episodes=(Episode(10.0, 5, 40), Episode(40.0, 5, 80)), first_episode=1))
    episodes.add(a_report(episodes=(Episode(20.0, 5, 60),), first_episode=3))
    episodes.close()
    plot_runs([run], tmp_path / "curve.png")
    assert [(x, y) for _, x, y in drawn] == [
        ([40, 60, 80], pytest.approx([10, 15, 70 / 3])),
        ([0.5] * 3, pytest.approx([10, 25, 70 / 3])),
        ([1, 2, 3], pytest.approx([10, 25, 70 / 3])),
    ]


def test_a_run_without_a_game_yet_has_nothing_to_draw(tmp_path: Path) -> None:
    young = a_run(tmp_path / "young", [])
    with pytest.raises(SettingsError, match="young: no episode has ended yet"):
        plot_runs([young], tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()
    assert pyplot.get_fignums() == [], "a figure that is not closed is kept for ever"


def test_a_folder_stands_for_the_runs_below_it(tmp_path: Path, drawn: list[Any]) -> None:
    """Runs with nothing to draw yet are left out, and none is drawn twice. Any name can be drawn."""
    first = a_run(tmp_path / "runs" / "b", RETURNS)
    a_run(tmp_path / "runs" / "exp" / os.fsdecode(b"\xc3\xfc"), RETURNS)
    a_run(tmp_path / "runs" / "young", [])
    plot_runs([tmp_path / "runs", first], tmp_path / "curve.png")
    assert {label for label, _, _ in drawn} == {"b", "\\udcc3\\udcfc"}


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{tmp_path}: is not a run folder, and contains none"):
        run_folders([tmp_path])
    a_run(tmp_path / "young", [])
    with pytest.raises(SettingsError, match="no episode has ended yet in any run below it"):
        run_folders([tmp_path])


@pytest.mark.parametrize("name", ["no/such/folder.png", "curve.spreadsheet"])
def test_a_plot_that_cannot_be_written_is_refused_with_the_flag(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"--out {tmp_path / name}"):
        plot_runs([a_run(tmp_path / "run", RETURNS)], tmp_path / name)
    assert pyplot.get_fignums() == []
