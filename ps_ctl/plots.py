"""
Learning curves of run folders, drawn from their metrics and episodes.

Runs of one group are drawn as their mean over the range that all of them cover, and as a band from the lowest to the
highest, interpolated on a common grid. Each run is also a thin line to its own end.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

from ps_common.errors import SettingsError
from ps_ctl.run_curves import Curve, group_runs, read_run, run_folders

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

GRID_POINTS = 300
LINES = ("-", "--", ":", "-.")  # ten colours of each
LEGEND_COLUMNS = 2
PANEL_INCHES, LEGEND_ROW_INCHES = 4.0, 0.25


def plot_runs(paths: Sequence[Path], out: Path) -> Path:
    """
    Plot the mean return of the last 100 episodes against steps, minutes and episodes, as the file `out`.

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
    by_steps.set(xlabel="environment steps of all workers", ylabel="mean return of the last 100 episodes")
    by_minutes.set(xlabel="minutes")
    by_episode.set(xlabel="episodes")
    for axes in panels:
        axes.grid(alpha=0.3)
    for axes in (by_steps, by_episode):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
    figure.legend(*by_steps.get_legend_handles_labels(), loc="outside lower center", ncols=LEGEND_COLUMNS)
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: unknown suffix
        raise SettingsError(f"--out {out}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
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
