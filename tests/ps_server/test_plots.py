"""Learning curves from what runs leave behind, whole or not."""

import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from common.errors import SettingsError
from ps_server.metrics import FILE_NAME, MetricsFile
from ps_server.plots import plot_runs
from tests.ps_server.test_metrics import a_status

SCORES = [None, -21.0, -20.5, 3.0]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return a_run(tmp_path / "pong-1", SCORES)


def a_run(folder: Path, scores: list[float | None]) -> Path:
    """A run folder with a row for each score, 100 steps and half a minute apart."""
    folder.mkdir()
    metrics = MetricsFile(folder)
    for number, score in enumerate(scores):
        status = a_status(preset="pong", mean_return_100=score, global_steps=100 * number, minutes=number / 2)
        metrics.add(status, now=1000.0 * number)
    metrics.close(a_status(preset="pong", mean_return_100=None))
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[float], list[float]]]:
    """(label, x, y) of every line, in the order of drawing."""
    lines: list[tuple[str, list[float], list[float]]] = []
    plot = Axes.plot

    def watched(axes: Axes, x: list[float], y: list[float], **options: Any) -> Any:
        lines.append((options["label"], x, y))
        return plot(axes, x, y, **options)

    monkeypatch.setattr(Axes, "plot", watched)
    return lines


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height in the header of a PNG file."""
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:])
    return int(width), int(height)


def test_a_picture_appears(run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve.png"
    assert plot_runs([run_folder], out) == out
    width, height = picture_size(out)
    assert width > height > 300
    assert pyplot.get_fignums() == []


def test_returns_are_drawn_against_steps_and_against_minutes(
    run_folder: Path, tmp_path: Path, drawn: list[Any]
) -> None:
    plot_runs([run_folder], tmp_path / "curve.png")
    returns = [-21.0, -20.5, 3.0]
    assert drawn == [
        ("pong (pong-1)", [100, 200, 300], returns),
        ("pong (pong-1)", [0.5, 1.0, 1.5], returns),
    ]


def test_several_runs_are_drawn_into_one_picture(run_folder: Path, tmp_path: Path, drawn: list[Any]) -> None:
    other = a_run(tmp_path / "pong-2", [5.0])
    plot_runs([run_folder, other], tmp_path / "curve.png")
    assert [label for label, _, _ in drawn] == ["pong (pong-1)"] * 2 + ["pong (pong-2)"] * 2


def test_a_run_is_named_by_its_folder_from_inside_too(
    run_folder: Path, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_folder)
    plot_runs([Path()], Path("curve.png"))
    assert drawn[0][0] == "pong (pong-1)"


def test_a_last_line_cut_short_anywhere_is_left_out(run_folder: Path, tmp_path: Path, drawn: list[Any]) -> None:
    """A killed server may stop in the middle of a line, right behind a brace as well."""
    path = run_folder / FILE_NAME
    whole = b"".join(path.read_bytes().splitlines(keepends=True)[:3])
    last = whole.splitlines()[-1]
    cuts = [1, len(last) // 3, last.index(b"}") + 1, len(last) - 1]
    for cut in cuts:
        drawn.clear()
        path.write_bytes(whole + last[:cut])
        plot_runs([run_folder], tmp_path / "curve.png")
        assert drawn[0][2] == [-21.0, -20.5]


def test_a_damaged_line_in_the_middle_is_left_out(run_folder: Path, tmp_path: Path, drawn: list[Any]) -> None:
    path = run_folder / FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b'{"mean_return_100": 7, {}}\n', b"\xff\xfe\n", b"3\n", *lines[2:]]))
    plot_runs([run_folder], tmp_path / "curve.png")
    assert drawn[0][2] == [-21.0, -20.5, 3.0]


def test_a_run_without_a_score_yet_has_nothing_to_draw(tmp_path: Path) -> None:
    young = a_run(tmp_path / "young", [None, None])
    with pytest.raises(SettingsError, match="young: no episode has ended yet"):
        plot_runs([young], tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()
    assert pyplot.get_fignums() == [], "a figure that is not closed is kept for ever"


def test_a_folder_without_metrics_is_no_run_folder(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{tmp_path}/nowhere: is not a run folder"):
        plot_runs([run_folder, tmp_path / "nowhere"], tmp_path / "curve.png")
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("name", ["no/such/folder.png", "curve.spreadsheet"])
def test_a_picture_that_cannot_be_written_there_is_told_with_the_flag(
    run_folder: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(SettingsError, match=f"--out {tmp_path / name}"):
        plot_runs([run_folder], tmp_path / name)
    assert pyplot.get_fignums() == []
