"""
Learning curves of run folders, drawn from their metrics and episodes.

Runs of one experiment and preset are drawn together: their mean over the stretch that all of them cover, and between
their lowest and highest a band, interpolated on the points of a common grid. Each goes to its own end as a thin line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import msgspec
import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from ps_server.episodes import read_episodes
from ps_server.lines_file import rows_in
from ps_server.metrics import FILE_NAME

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot
from matplotlib.axes import Axes

GRID_POINTS = 300
Numbers = NDArray[np.float64]


class _Row(msgspec.Struct):
    """What is drawn of a line of metrics; there is more in it."""

    preset: str
    global_steps: int
    minutes: float
    mean_return_100: float | None
    experiment: str = ""


@dataclass(frozen=True)
class _Curve:
    """y over x, both [N]; x never falls."""

    x: Numbers
    y: Numbers


@dataclass(frozen=True)
class _Run:
    """What is drawn of one run folder."""

    folder: str
    family: str  # runs of one family are drawn together
    by_steps: _Curve
    by_minutes: _Curve
    by_episode: _Curve  # the running return; empty when the run has no list of episodes
    returns: Numbers  # of its episodes, as they are


def plot_runs(folders: Sequence[Path], out: Path, *, smoothing: float) -> Path:
    """
    Mean return of the last 100 episodes against steps and against minutes, and the running return by episode.

    The running return r becomes  smoothing · r + (1 − smoothing) · return  with each episode, from the first one's.
    Raises SettingsError when a folder holds no metrics, or nothing to draw, or when `out` cannot be written.
    """
    runs = [_run_in(folder, smoothing) for folder in folders]
    figure, panels = pyplot.subplots(1, 3, figsize=(16, 4), layout="constrained")
    by_steps, by_minutes, by_episode = panels
    by_minutes.sharey(by_steps)
    for number, family in enumerate(dict.fromkeys(run.family for run in runs)):
        members = [run for run in runs if run.family == family]
        label = f"{family} ({members[0].folder})" if len(members) == 1 else f"{family} ({len(members)} runs)"
        color = f"C{number % 10}"
        _draw(by_steps, [run.by_steps for run in members], label, color)
        _draw(by_minutes, [run.by_minutes for run in members], label, color)
        _draw(by_episode, [run.by_episode for run in members], label, color)
        if len(runs) == 1:  # more would hide each other
            episodes = np.arange(1, len(runs[0].returns) + 1)
            by_episode.scatter(episodes, runs[0].returns, s=2, alpha=0.3, color=color, linewidths=0)
    by_steps.set(xlabel="environment steps of all workers", ylabel="mean return of the last 100 episodes")
    by_minutes.set(xlabel="minutes")
    by_episode.set(xlabel="episodes", ylabel=f"running return, {smoothing:g} / {1 - smoothing:.3g}")
    for axes in panels:
        axes.grid(alpha=0.3)
    by_steps.legend()
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: no picture has such a suffix
        raise SettingsError(f"--out {out}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
    return out


def running_return(returns: Sequence[float], smoothing: float) -> Numbers:
    """[N], as `plot_runs` says."""
    running = np.array(returns, dtype=np.float64)
    for episode in range(1, len(running)):
        running[episode] = smoothing * running[episode - 1] + (1 - smoothing) * running[episode]
    return running


def _draw(axes: Axes, curves: Sequence[_Curve], label: str, color: str) -> None:
    """One curve as it is; of several the mean, a band from their lowest to their highest, and each as a thin line."""
    curves = [curve for curve in curves if len(curve.x)]
    start = max((curve.x[0] for curve in curves), default=0.0)
    end = min((curve.x[-1] for curve in curves), default=0.0)
    if len(curves) < 2 or start >= end:  # those that have nothing in common have no mean
        for curve in curves:
            axes.plot(curve.x, curve.y, label=label, color=color)
        return
    grid = np.linspace(start, end, GRID_POINTS)
    heights = np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])
    axes.plot(grid, heights.mean(axis=0), label=label, color=color)
    for curve in curves:  # also where others have ended: who reaches the goal first ends first
        axes.plot(curve.x, curve.y, color=color, alpha=0.5, linewidth=0.7)
    axes.fill_between(grid, heights.min(axis=0), heights.max(axis=0), color=color, alpha=0.2, linewidth=0)


def _run_in(folder: Path, smoothing: float) -> _Run:
    rows = _rows(folder)
    try:
        episodes = read_episodes(folder)
    except FileNotFoundError:  # a run of before there were any
        episodes = []
    returns = [row.mean_return_100 for row in rows]
    smoothed = running_return([episode.episode_return for episode in episodes], smoothing)
    last = rows[-1]
    return _Run(
        folder=folder.resolve().name,
        family=f"{last.experiment}: {last.preset}" if last.experiment else last.preset,
        by_steps=_curve([row.global_steps for row in rows], returns),
        by_minutes=_curve([row.minutes for row in rows], returns),
        by_episode=_curve([episode.episode for episode in episodes], smoothed),
        returns=np.array([episode.episode_return for episode in episodes]),
    )


def _curve(x: Sequence[float], y: Sequence[float | None] | Numbers) -> _Curve:
    return _Curve(np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))


def _rows(folder: Path) -> list[_Row]:
    """The lines with a score in them. A resumed run goes back to its checkpoint: what it lost is left out."""
    try:
        lines = rows_in(folder / FILE_NAME, _Row)
    except OSError as error:
        raise SettingsError(f"{folder}: is not a run folder: {error.strerror}") from error
    rows: list[_Row] = []
    for row in lines:
        if row.mean_return_100 is None:
            continue
        while rows and (rows[-1].global_steps > row.global_steps or rows[-1].minutes > row.minutes):
            rows.pop()
        rows.append(row)
    if not rows:
        raise SettingsError(f"{folder}: no episode has ended yet; there is nothing to draw")
    return rows
