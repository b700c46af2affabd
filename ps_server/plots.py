"""Learning curves of run folders, drawn from their metrics."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import msgspec

from common.errors import SettingsError
from ps_server.metrics import FILE_NAME

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot


def plot_runs(folders: Sequence[Path], out: Path) -> Path:
    """
    One line for each run: mean return of the last 100 episodes against steps, and against minutes.

    Raises SettingsError when a folder holds no metrics, or nothing to draw.
    """
    figure, (by_steps, by_minutes) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for folder in folders:
        rows = _rows(folder)
        returns = [row["mean_return_100"] for row in rows]
        label = f"{rows[-1]['preset']} ({folder.name})"
        by_steps.plot([row["global_steps"] for row in rows], returns, label=label)
        by_minutes.plot([row["minutes"] for row in rows], returns, label=label)
    by_steps.set(xlabel="environment steps of all workers", ylabel="mean return of the last 100 episodes")
    by_minutes.set(xlabel="minutes")
    for axes in (by_steps, by_minutes):
        axes.grid(alpha=0.3)
    by_steps.legend()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)
    return out


def _rows(folder: Path) -> list[dict[str, float]]:
    try:
        lines = (folder / FILE_NAME).read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"{folder}: is not a run folder: {error.strerror}") from error
    # The last line of a server that was killed may be cut short.
    whole = [msgspec.json.decode(line) for line in lines if line.endswith(b"}")]
    rows = [row for row in whole if row["mean_return_100"] is not None]
    if not rows:
        raise SettingsError(f"{folder}: no episode has ended yet; there is nothing to draw")
    return rows
