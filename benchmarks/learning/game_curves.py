"""A picture of the learning of many games: one panel each, with the scores that a policy must beat as lines."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from matplotlib import pyplot

from benchmarks.learning.published import AGENTS, published
from ps_common.run_folder.paths import METRICS, run_folders_below
from ps_common.run_folder.run_rows import MetricsRow, rows_in

COLUMNS = 4
OF_AGENTS = ("tab:orange", "tab:green", "tab:red")


class Learned(Protocol):
    """A game, and what it is compared with."""

    @property
    def game(self) -> str: ...
    @property
    def frames(self) -> list[int]: ...
    @property
    def random(self) -> float: ...
    @property
    def constant(self) -> tuple[str, float]: ...


def draw(folder: Path, games: Sequence[Learned], picture: Path) -> None:
    """The curves of the runs in folder/GAME: the mean of 100 training games against frames."""
    high = math.ceil(len(games) / COLUMNS)
    wide = min(COLUMNS, len(games))
    figure, panels = pyplot.subplots(high, wide, figsize=(4 * wide, 3 * high), layout="constrained", squeeze=False)
    for panel in panels.flat[len(games) :]:
        panel.set_axis_off()
    for panel, learned in zip(panels.flat, games, strict=False):
        for run in run_folders_below(folder / learned.game):
            rows = [row for row in rows_in(run / METRICS, MetricsRow) if row.mean_return_100 is not None]
            millions = [row.global_steps * row.frames_per_step / 1e6 for row in rows]
            panel.plot(millions, [row.mean_return_100 for row in rows], color="tab:blue")
        panel.axhline(learned.random, color="gray", linestyle=":", label="random play")
        action, held = learned.constant
        panel.axhline(held, color="gray", linestyle="--", label=f"always {action}")
        for agent, colour in zip(AGENTS, OF_AGENTS, strict=True):
            if (score := published(learned.game, agent, statistics.median(learned.frames))) is not None:
                panel.axhline(score.mean, color=colour, linestyle="-.", label=f"{agent}, million {score.million}")
        panel.set(title=learned.game, xlabel="million frames")
        panel.legend(fontsize="x-small")
    figure.supylabel("mean of 100 training games")
    figure.savefig(picture, dpi=100)
    pyplot.close(figure)
