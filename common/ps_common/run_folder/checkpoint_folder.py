"""
A folder of checkpoints: which is newer, and which can be read. It changes nothing.

Only names that paths.py makes count: a copy under another name is not a checkpoint.
"""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ps_common.errors import CheckpointError, DamagedCheckpoint, OtherFormat, StoreError
from ps_common.run_folder.paths import ASIDE, BEST, CHECKPOINTS, LINEAGE, METRICS, NEWEST, numbers_in

C = TypeVar("C")
T = TypeVar("T")


def newest_first(folder: Path, kind: str = NEWEST) -> list[Path]:
    """The checkpoints of a kind, the newest first."""
    return sorted((path for path in folder.glob(kind) if numbers_in(path.name)), key=_numbers, reverse=True)


def older_than(path: Path, kind: str = NEWEST) -> list[Path]:
    """The checkpoints of a kind in the same folder that are older than this one, the newest first."""
    return [other for other in newest_first(path.parent, kind) if _numbers(other) < _numbers(path)]


def newer_than(path: Path, kind: str = NEWEST) -> list[Path]:
    """The checkpoints of a kind in the same folder that are newer than this one, the newest first."""
    return [other for other in newest_first(path.parent, kind) if _numbers(other) > _numbers(path)]


def checkpoints_of(run_folder: Path) -> list[Path]:
    """The newest first: those in the run folder's `checkpoints`, or in the folder itself."""
    return newest_first(run_folder / CHECKPOINTS) or newest_first(run_folder)


def best_first(run_folder: Path) -> list[Path]:
    """The best checkpoint of a run, if there is one, then all others, the newest first."""
    best = [folder / BEST for folder in (run_folder / CHECKPOINTS, run_folder)]
    return [*(path for path in best if path.exists()), *checkpoints_of(run_folder)]


def why_none(folder: Path, run_folder: Path | None = None) -> str:
    """Why no checkpoint here can be resumed, in words; `run_folder` is that of the run if it is another one."""
    run_folder = run_folder or folder
    place = folder / CHECKPOINTS if (folder / CHECKPOINTS).is_dir() else folder
    names = sorted(path.name for path in place.glob("*"))
    if damaged := checkpoints_of(folder):
        return f"each of its {len(damaged)} checkpoints is damaged"
    if aside := [name for name in names if name.endswith(ASIDE)]:
        return f"its checkpoints were damaged, and are moved aside: {', '.join(aside[:3])}"
    if others := [name for name in names if name.endswith(".safetensors")]:
        return f"it has no checkpoints that can be resumed, only {', '.join(others[:3])}"
    if not any((one / name).exists() for name in (LINEAGE, METRICS) for one in (run_folder, run_folder.parent)):
        return "it is not the folder of a run: no server has served there"
    return "it has no checkpoints: its server never had weights, or keeps them in another place (--checkpoint-dir)"


def first_verified(
    candidates: Iterable[C], read: Callable[[C], T], passed_over: Callable[[C, CheckpointError], object]
) -> tuple[C, T] | None:
    """
    The first candidate that is not damaged, with its content; None without one. `passed_over` gets those before it,
    each with its error.

    A file that another process has removed meanwhile is passed over too. Raises CheckpointError for any other: what a
    disk cannot read now, and what another version of ps-rl wrote, may be whole, and nobody goes back behind it unasked.
    """
    for one in candidates:
        try:
            return one, read(one)
        except DamagedCheckpoint as error:
            passed_over(one, error)
        except (OtherFormat, StoreError):
            raise
        except CheckpointError as error:
            if getattr(error.__cause__, "errno", None) != errno.ENOENT:
                why = "no older one is taken in its place, and nothing was changed; try again when it can be read"
                raise CheckpointError(f"{error}: {why}") from error
            passed_over(one, error)
    return None


def _numbers(path: Path) -> tuple[int, ...]:
    return numbers_in(path.name)
