"""
Learning curves of run folders, drawn from their metrics and episodes. Files may be damaged, and a run may still go on.

The runs of one experiment, preset, settings and number of workers are a group, whose label names the settings in which
it differs from other groups of the same name. A group is drawn as its mean over the range that all of its runs cover,
and as a band from the lowest to the highest, interpolated on a common grid. Each run is a thin line to its end, too.
"""

import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import msgspec
import numpy as np
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.protocol.names import Count, printable
from ps_common.protocol.record import EPISODES_IN_MEAN
from ps_common.run_folder.output_files import write_output
from ps_common.run_folder.paths import METRICS, records_folder, run_folders_below, run_name
from ps_common.run_folder.run_rows import EpisodeRow, read_episodes, read_evaluations, rows_in, scored_rows
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.settings.run_settings import flag_of, flat_settings
from ps_common.settings.table import kinds_of

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

Numbers = NDArray[np.float64]
GRID_POINTS = 300
LINES = ("-", "--", ":", "-.")  # ten colours of each
LEGEND_COLUMNS = 2
PANEL_INCHES, LEGEND_ROW_INCHES = 4.0, 0.25
MOST_DIFFERENCES = 4  # that a label names
WORKERS = "workers"  # not in run.toml: workers come and go


class _Row(msgspec.Struct):
    """The fields of a line of metrics that are drawn."""

    preset: str
    global_steps: Count
    minutes: float
    episodes: Count
    mean_return_100: float | None
    experiment: str = ""
    workers_alive: Count = 0


@dataclass(frozen=True)
class Curve:
    """y over x, both [N]; x never falls."""

    x: Numbers
    y: Numbers


@dataclass(frozen=True)
class RunCurves:
    """The mean return of the last 100 episodes over steps, minutes and episodes, and the settings of the run."""

    folder: str  # its name
    preset: str
    experiment: str
    settings: dict[str, Any]  # of run.toml, flat; empty where there is none
    workers: int  # median of those alive at once
    by_steps: Curve
    by_minutes: Curve
    by_episode: Curve
    episodes: Curve  # the return of each, over its number; empty without episodes.jsonl
    evaluations: tuple[Curve, Curve, Curve]  # their mean returns, over the same three; empty without evaluations


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """
    The run folders at or below the paths; below a path only those in which an episode has ended.

    Raises SettingsError when there is none.
    """
    folders: list[Path] = []
    for path in map(records_folder, paths):
        if (path / METRICS).exists():
            folders.append(path)
            continue
        folders += [folder for folder in run_folders_below(path) if _scored_rows(folder)]
    once = {folder.resolve(): folder for folder in folders}
    if not once:
        raise SettingsError(f"{paths[0]}: no episode has ended yet in any run below it; there is nothing to draw")
    return list(once.values())


def read_run(folder: Path) -> RunCurves:
    """The curves of one run folder. Raises SettingsError when it is none, or has nothing to draw yet."""
    rows = _scored_rows(folder)
    if not rows:
        raise SettingsError(f"{folder}: no episode has ended yet; there is nothing to draw")
    episodes = _episodes(folder)
    if episodes:
        by_steps = sorted(episodes, key=lambda row: row.global_steps)  # games of several workers come out of order
        steps = Curve(_numbers(row.global_steps for row in by_steps), mean_of_last(EPISODES_IN_MEAN, by_steps).y)
        by_episode = mean_of_last(EPISODES_IN_MEAN, episodes)
        minutes = Curve(_numbers(row.minutes for row in episodes), by_episode.y)
    else:
        returns = np.array([row.mean_return_100 for row in rows], dtype=np.float64)
        steps = Curve(_numbers(row.global_steps for row in rows), returns)
        minutes = Curve(_numbers(row.minutes for row in rows), returns)
        by_episode = Curve(_numbers(row.episodes for row in rows), returns)
    evaluations = read_evaluations(folder)
    means = _numbers(row.mean_return for row in evaluations)
    return RunCurves(
        folder=run_name(folder),
        preset=rows[-1].preset,
        experiment=rows[-1].experiment,
        settings=flat_settings(settings_as_written(folder / SETTINGS)),
        workers=statistics.median_high([row.workers_alive for row in rows if row.workers_alive] or [0]),
        by_steps=steps,
        by_minutes=minutes,
        by_episode=by_episode,
        episodes=Curve(_numbers(row.episode for row in episodes), _numbers(row.episode_return for row in episodes)),
        evaluations=(
            Curve(_numbers(row.global_steps for row in evaluations), means),
            Curve(_numbers(row.minutes for row in evaluations), means),
            Curve(_numbers(row.episodes for row in evaluations), means),
        ),
    )


def mean_of_last(count: int, episodes: Sequence[EpisodeRow]) -> Curve:
    """At each row the mean of the last `count` games up to it; of fewer at the beginning."""
    games = np.concatenate([[0], np.cumsum([row.games for row in episodes])])
    sums = np.concatenate([[0.0], np.cumsum([row.games * row.episode_return for row in episodes])])
    first = np.maximum(games[1:] - count, 0)  # game of the window; it may lie inside a row of several games
    means = (sums[1:] - np.interp(first, games, sums)) / (games[1:] - first)
    return Curve(_numbers(row.episode for row in episodes), means)


def _numbers(values: Iterable[float]) -> Numbers:
    return np.fromiter(values, dtype=np.float64)


def _episodes(folder: Path) -> list[EpisodeRow]:
    try:
        return read_episodes(folder)
    except OSError:
        return []


def _scored_rows(folder: Path) -> list[_Row]:
    try:
        return scored_rows(rows_in(folder / METRICS, _Row))
    except OSError as error:
        raise SettingsError(f"{folder}: is not a run folder: {error.strerror}") from error


@dataclass(frozen=True)
class RunGroup:
    """Runs of the same settings."""

    label: str
    runs: tuple[RunCurves, ...]


def group_runs(runs: Sequence[RunCurves]) -> list[RunGroup]:
    """The groups, in the order of their first runs."""
    names: dict[str, dict[str, list[RunCurves]]] = {}
    for run in runs:
        name = f"{run.experiment}: {run.preset}" if run.experiment else run.preset
        names.setdefault(name, {}).setdefault(repr(sorted(_settings(run).items())), []).append(run)
    groups: list[RunGroup] = []
    for name, kinds in names.items():
        settings = [_settings(members[0]) for members in kinds.values()]
        differing = _differing(settings)
        for members, own in zip(kinds.values(), settings, strict=True):
            words = [name, *_in_words(own, differing)]
            which = members[0].folder if len(members) == 1 else f"{len(members)} runs"
            groups.append(RunGroup(printable(f"{', '.join(words)} ({which})"), tuple(members)))
    return groups


def _settings(run: RunCurves) -> dict[str, Any]:
    """The settings that separate groups."""
    return {key: value for key, value in run.settings.items() if not kinds_of(key).per_run} | {WORKERS: run.workers}


def _differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Keys of the settings that differ. Where algorithms differ, only their names are listed."""
    keys = list(dict.fromkeys(key for own in settings for key in own))
    differing = [key for key in keys if len({repr(own.get(key)) for own in settings}) > 1]
    renamed = tuple(f"{key.removesuffix('name')}" for key in differing if key.endswith(".name"))
    return [key for key in differing if key.endswith(".name") or not key.startswith(renamed or ("?",))]


def _in_words(own: dict[str, Any], differing: Iterable[str]) -> list[str]:
    words = [f"{flag_of(key).removeprefix('--')} {_short(own.get(key))}" for key in differing]
    more = len(words) - MOST_DIFFERENCES
    return words if more <= 0 else [*words[:MOST_DIFFERENCES], f"{more} more"]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def plot_runs(paths: Sequence[Path], out: Path) -> Path:
    """
    Plot the mean return of the last 100 episodes against steps, minutes and episodes, as the file `out`, by its suffix.

    A path is a run folder, or a folder that contains some. Raises SettingsError when there is no run folder, when one
    has nothing to draw yet, or when `out` cannot be written.
    """
    runs = [read_run(folder) for folder in run_folders(paths)]
    groups = group_runs(runs)
    height = PANEL_INCHES + LEGEND_ROW_INCHES * -(-len(groups) // LEGEND_COLUMNS)
    figure, panels = pyplot.subplots(1, 3, figsize=(16, height), layout="constrained", sharey=True)
    by_steps, by_minutes, by_episode = panels
    if len(runs) == 1:  # episodes of several runs would hide each other
        by_episode.scatter(runs[0].episodes.x, runs[0].episodes.y, s=2, alpha=0.3, color="C0", linewidths=0)
    for number, group in enumerate(groups):
        look = (group.label, f"C{number % 10}", LINES[number // 10 % len(LINES)])
        _draw(by_steps, [run.by_steps for run in group.runs], *look)
        _draw(by_minutes, [run.by_minutes for run in group.runs], *look)
        _draw(by_episode, [run.by_episode for run in group.runs], *look)
        for axes, curves in zip(panels, zip(*(run.evaluations for run in group.runs), strict=True), strict=True):
            for curve in curves:  # of points, which are few beside the games of training
                if len(curve.x):
                    axes.plot(curve.x, curve.y, color=look[1], marker="o", markersize=3, linestyle=":", linewidth=0.7)
    by_steps.set(xlabel="environment steps of all workers", ylabel="mean return of the last 100 episodes")
    by_minutes.set(xlabel="minutes")
    by_episode.set(xlabel="episodes")
    for axes in panels:
        axes.grid(alpha=0.3)
    for axes in (by_steps, by_episode):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
    figure.legend(*by_steps.get_legend_handles_labels(), loc="outside lower center", ncols=LEGEND_COLUMNS)
    try:
        picture = io.BytesIO()
        figure.savefig(picture, dpi=120, format=out.suffix[1:] or None)
    except ValueError as error:  # an unknown suffix
        raise SettingsError(f"--out {out}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
    write_output("--out", out, picture.getvalue())
    return out


def _draw(axes: Axes, curves: Sequence[Curve], label: str, color: str, line: str) -> None:
    """One curve as a line; several as their mean, a band from lowest to highest, and thin lines."""
    curves = [curve for curve in curves if len(curve.x)]
    start = max((curve.x[0] for curve in curves), default=0.0)
    end = min((curve.x[-1] for curve in curves), default=0.0)
    if len(curves) < 2 or start >= end:  # curves without a common range have no mean
        for curve in curves:
            axes.plot(curve.x, curve.y, label=label, color=color, linestyle=line)
        return
    grid = np.linspace(start, end, GRID_POINTS)
    heights = np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])
    axes.plot(grid, heights.mean(axis=0), label=label, color=color, linestyle=line)
    for curve in curves:  # also beyond the end of others: the fastest run ends first
        axes.plot(curve.x, curve.y, color=color, alpha=0.5, linewidth=0.7)
    axes.fill_between(grid, heights.min(axis=0), heights.max(axis=0), color=color, alpha=0.2, linewidth=0)
