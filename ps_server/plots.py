"""Learning curves of run folders, drawn from their metrics."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import msgspec

from common.errors import SettingsError
from ps_server.metrics import FILE_NAME

matplotlib.use("Agg")  # draws into files; needs no display
from matplotlib import pyplot


class _Row(msgspec.Struct):
    """What is drawn of a line of metrics; there is more in it."""

    preset: str
    global_steps: int
    minutes: float
    mean_return_100: float | None


def plot_runs(folders: Sequence[Path], out: Path) -> Path:
    """
    One line for each run: mean return of the last 100 episodes against steps, and against minutes.

    Raises SettingsError when a folder holds no metrics, or nothing to draw, or when `out` cannot be written.
    """
    runs = [(folder.resolve().name, _rows(folder)) for folder in folders]
    figure, (by_steps, by_minutes) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for name, rows in runs:
        returns = [row.mean_return_100 for row in rows]
        label = f"{rows[-1].preset} ({name})"
        by_steps.plot([row.global_steps for row in rows], returns, label=label)
        by_minutes.plot([row.minutes for row in rows], returns, label=label)
    by_steps.set(xlabel="environment steps of all workers", ylabel="mean return of the last 100 episodes")
    by_minutes.set(xlabel="minutes")
    for axes in (by_steps, by_minutes):
        axes.grid(alpha=0.3)
    by_steps.legend()
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: no picture has such a suffix
        raise SettingsError(f"--out {out}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
    return out


def _rows(folder: Path) -> list[_Row]:
    """The lines with a score in them."""
    try:
        lines = (folder / FILE_NAME).read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"{folder}: is not a run folder: {error.strerror}") from error
    rows = []
    for line in lines:
        # A server that was killed may leave half a line.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            rows.append(msgspec.json.decode(line, type=_Row))
    rows = [row for row in rows if row.mean_return_100 is not None]
    if not rows:
        raise SettingsError(f"{folder}: no episode has ended yet; there is nothing to draw")
    return rows
