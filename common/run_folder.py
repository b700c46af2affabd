"""The folder of a run: the one that the user names, or runs/EXPERIMENT/PRESET-DATE-seedN."""

import time
from pathlib import Path

from common.errors import SettingsError


def make_run_folder(given: Path | None, *, experiment: str, preset: str, seed: int | None) -> Path:
    """`experiment` may be empty, and left out then; so is a seed of None. Raises SettingsError."""
    name = f"{preset}-{time.strftime('%Y%m%d-%H%M%S')}" + ("" if seed is None else f"-seed{seed}")
    folder = given or Path("runs") / experiment / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--run-dir {folder}: cannot be made: {error.strerror}") from error
    return folder
