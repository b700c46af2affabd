"""Segments of shared memory that have a name. Other workers of this machine may be joining at any moment."""

import fcntl
import os
from pathlib import Path

from common.shared_memory import FOLDER, NAME


def names() -> set[str]:
    return set(filter(NAME.fullmatch, os.listdir(FOLDER)))


def left_behind() -> set[str]:
    """Names that no living worker has locked."""
    return {name for name in names() if _is_free(name)}


def name_that_is_open(pid: int) -> str:
    """The name of the segment that a process has open; "" when that has none."""
    open_here = {_inode(path) for path in Path(f"/proc/{pid}/fd").iterdir()} - {None}
    return next((name for name in names() if _inode(Path(FOLDER) / name) in open_here), "")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:  # it is gone meanwhile
        return None


def _is_free(name: str) -> bool:
    try:
        with open(f"{FOLDER}/{name}", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is locked, or gone meanwhile
        return False
    return True
