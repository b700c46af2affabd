"""Learning curves of run folders, one line a run. Files may be damaged, and a run may still go on."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.protocol.names import printable
from ps_common.protocol.record import EPISODES_IN_MEAN
from ps_common.run_folder.output_files import write_output
from ps_common.run_folder.paths import METRICS, records_folder, run_folders_below, run_name
from ps_common.run_folder.run_rows import EpisodeRow, read_episodes, read_evaluations

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

LINES = ("-", "--", ":", "-.")  # ten colours of each
LEGEND_COLUMNS = 2
PANEL_INCHES, LEGEND_ROW_INCHES = 4.0, 0.25
PANELS = {"global_steps": "environment steps of all workers", "minutes": "minutes", "episode": "episodes"}


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """
    The run folders at or below the paths; below a path only those in which an episode has ended.

    Raises SettingsError when there is none.
    """
    folders: list[Path] = []
    for path in map(records_folder, paths):
        is_run = (path / METRICS).exists()
        folders += [path] if is_run else [folder for folder in run_folders_below(path) if _episodes(folder)]
    once = {folder.resolve(): folder for folder in folders}
    if not once:
        raise SettingsError(f"{paths[0]}: no episode has ended yet in any run below it; there is nothing to draw")
    return list(once.values())


def mean_of_last(count: int, episodes: Sequence[EpisodeRow]) -> NDArray[np.float64]:
    """At each row the mean of the last `count` games up to it; of fewer at the beginning."""
    games = np.concatenate([[0], np.cumsum([row.games for row in episodes])])
    sums = np.concatenate([[0.0], np.cumsum([row.games * row.episode_return for row in episodes])])
    first = np.maximum(games[1:] - count, 0)  # game of the window; it may lie inside a row of several games
    means: NDArray[np.float64] = (sums[1:] - np.interp(first, games, sums)) / (games[1:] - first)
    return means


def plot_runs(paths: Sequence[Path], out: Path) -> Path:
    """
    Plot the mean return of the last 100 episodes against steps, minutes and episodes, as the file `out`, by its suffix.

    A path is a run folder, or a folder that contains some. Raises SettingsError when there is no run folder, when one
    has nothing to draw yet, or when `out` cannot be written.
    """
    runs = {folder: _drawn(folder) for folder in run_folders(paths)}
    height = PANEL_INCHES + LEGEND_ROW_INCHES * -(-len(runs) // LEGEND_COLUMNS)
    figure, panels = pyplot.subplots(1, 3, figsize=(16, height), layout="constrained", sharey=True)
    for axes, (field, label) in zip(panels, PANELS.items(), strict=True):
        axes.set(xlabel=label)
        axes.grid(alpha=0.3)
        if field != "minutes":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
        for number, (folder, episodes) in enumerate(runs.items()):
            _draw(axes, folder, episodes, field, number, shows_games=len(runs) == 1)
    panels[0].set(ylabel="mean return of the last 100 episodes")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=LEGEND_COLUMNS)
    try:
        picture = io.BytesIO()
        figure.savefig(picture, dpi=120, format=out.suffix[1:] or None)
    except ValueError as error:  # an unknown suffix
        raise SettingsError(f"--out {out}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
    write_output("--out", out, picture.getvalue())
    return out


def _draw(
    axes: Axes, folder: Path, episodes: Sequence[EpisodeRow], field: str, number: int, *, shows_games: bool
) -> None:
    """A run as a line, and its evaluations as points. The games of several runs would hide each other."""
    # Games of several workers come out of the order of their steps.
    rows = sorted(episodes, key=lambda row: row.global_steps) if field == "global_steps" else episodes
    x, colour = [getattr(row, field) for row in rows], f"C{number % 10}"
    if field == "episode" and shows_games:
        axes.scatter(x, [row.episode_return for row in rows], s=2, alpha=0.3, linewidths=0, color=colour)
    line, name = LINES[number // 10 % len(LINES)], printable(run_name(folder))
    axes.plot(x, mean_of_last(EPISODES_IN_MEAN, rows), label=name, linestyle=line, color=colour)
    if evaluations := read_evaluations(folder):
        at = [getattr(row, "episodes" if field == "episode" else field) for row in evaluations]
        means = [row.mean_return for row in evaluations]
        axes.plot(at, means, marker="o", markersize=3, linestyle=":", linewidth=0.7, color=colour)


def _drawn(folder: Path) -> list[EpisodeRow]:
    """The games of a run. Raises SettingsError when the folder is none of a run, or has no games yet."""
    if not (folder / METRICS).exists():
        raise SettingsError(f"{folder}: is not a run folder")
    if not (episodes := _episodes(folder)):
        raise SettingsError(f"{folder}: no episode has ended yet; there is nothing to draw")
    return episodes


def _episodes(folder: Path) -> list[EpisodeRow]:
    try:
        return read_episodes(folder)
    except OSError:
        return []
