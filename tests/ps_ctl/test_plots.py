"""Learning curves from run folders, intact or damaged."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from ps_common.errors import SettingsError
from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import METRICS
from ps_common.settings.run_files import SETTINGS, load_preset
from ps_common.settings.run_settings import with_settings
from ps_ctl.plots import GRID_POINTS, plot_runs
from ps_server.records.history import EpisodesFile, MetricsFiles
from tests.ps_server.records.test_episodes import a_report
from tests.ps_server.records.test_metrics import a_status

SCORES = [None, -21.0, -20.5, 3.0]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return a_run(tmp_path / "pong-1", SCORES)


def a_run(
    folder: Path,
    scores: list[float | None],
    *,
    preset: str = "pong",
    experiment: str = "",
    workers: int = 2,
    settings: dict[str, Any] | None = None,
) -> Path:
    """A run folder with a row for each score, 100 steps, ten episodes and half a minute apart."""
    folder.mkdir(parents=True)
    if settings is not None:
        run = with_settings(load_preset(preset), settings | {"experiment": experiment}, source="a test")
        (folder / SETTINGS).write_text(run.to_toml())
    metrics = MetricsFiles(folder)
    for number, score in enumerate(scores):
        status = a_status(
            preset=preset,
            experiment=experiment,
            mean_return_100=score,
            global_steps=100 * number,
            episodes=10 * number,
            minutes=number / 2,
            workers_alive=workers if number else 0,
        )
        metrics.add(status, now=1000.0 * number, time_of_day=0.0)
    metrics.close(a_status(preset=preset, mean_return_100=None), time_of_day=0.0)
    return folder


def some_episodes(folder: Path, *returns: float) -> None:
    episodes = EpisodesFile(folder)
    episodes.add(a_report(episodes=tuple(Episode(value, 10) for value in returns)))
    episodes.close()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> dict[bool, list[Any]]:
    """(label, x, y) of every line, those that have a label and those that have none, in the order of drawing."""
    lines: dict[bool, list[Any]] = {True: [], False: []}
    plot = Axes.plot

    def watched(axes: Axes, x: list[float], y: list[float], **options: Any) -> Any:
        label = options.get("label")
        lines[label is not None].append((label, list(x), list(y)))
        return plot(axes, x, y, **options)

    monkeypatch.setattr(Axes, "plot", watched)
    return lines


@pytest.fixture
def drawn(lines: dict[bool, list[Any]]) -> list[Any]:
    """(label, x, y) of the lines that the legend names: for each run, or family of runs, by steps, minutes, episode."""
    return lines[True]


@pytest.fixture
def bands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[float], list[float]]]:
    """(lower edge, upper edge) of every band."""
    edges: list[tuple[list[float], list[float]]] = []
    fill = Axes.fill_between

    def watched(axes: Axes, x: list[float], low: list[float], high: list[float], **options: Any) -> Any:
        edges.append((list(low), list(high)))
        return fill(axes, x, low, high, **options)

    monkeypatch.setattr(Axes, "fill_between", watched)
    return edges


def test_returns_are_drawn_against_steps_minutes_and_episodes(
    run_folder: Path, tmp_path: Path, drawn: list[Any]
) -> None:
    plot_runs([run_folder], tmp_path / "curve.png")
    returns = [-21.0, -20.5, 3.0]
    assert drawn == [
        ("pong (pong-1)", [100, 200, 300], returns),
        ("pong (pong-1)", [0.5, 1.0, 1.5], returns),
        ("pong (pong-1)", [10, 20, 30], returns),
    ]


def test_runs_of_one_preset_become_their_mean_and_a_band(
    tmp_path: Path, drawn: list[Any], bands: list[tuple[list[float], list[float]]]
) -> None:
    """Over the stretch that all cover: steps 100 to 200. In between they are straight lines."""
    low, high = a_run(tmp_path / "low", [0.0, 10.0, 20.0]), a_run(tmp_path / "high", [None, 30.0, 60.0, 90.0])
    plot_runs([low, high], tmp_path / "curve.png")
    label, steps, mean = drawn[0]
    assert label == "pong (2 runs)"
    assert (steps[0], steps[-1], len(steps)) == (100, 200, GRID_POINTS)
    assert mean == pytest.approx([20 + (step - 100) * 0.2 for step in steps])
    lowest, highest = bands[0]
    assert lowest == pytest.approx([step / 10 for step in steps])
    assert highest == pytest.approx([step * 0.3 for step in steps])
    assert drawn[1][1][0] == 0.5, "minutes have a grid of their own"


def test_the_mean_of_the_last_hundred_is_drawn_by_episode(run_folder: Path, tmp_path: Path, drawn: list[Any]) -> None:
    """Of fewer at the beginning; where each of the last hundred games came to 500, so does their mean."""
    some_episodes(run_folder, *[10.0, 20.0, 0.0], *[500.0] * 100)
    plot_runs([run_folder], tmp_path / "curve.png")
    label, episodes, means = drawn[2]
    assert (label, episodes) == ("pong (pong-1)", list(range(1, 104)))
    assert means[:4] == pytest.approx([10.0, 15.0, 10.0, 132.5])
    assert means[-2:] == pytest.approx([495.0, 500.0])


def test_rows_that_a_resume_lost_are_left_out(tmp_path: Path, drawn: list[Any]) -> None:
    """The resumed run goes back in steps and minutes."""
    folder = a_run(tmp_path / "pong-1", [1.0, 2.0, 3.0, 4.0])
    lines = (folder / METRICS).read_bytes().splitlines(keepends=True)
    (folder / METRICS).write_bytes(b"".join([*lines[:4], lines[1], lines[2]]))
    plot_runs([folder], tmp_path / "curve.png")
    assert drawn[0][1] == [0, 100, 100, 200]


def test_a_run_without_a_score_yet_has_nothing_to_draw(tmp_path: Path) -> None:
    young = a_run(tmp_path / "young", [None, None])
    with pytest.raises(SettingsError, match="young: no episode has ended yet"):
        plot_runs([young], tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()
    assert pyplot.get_fignums() == [], "a figure that is not closed is kept for ever"
