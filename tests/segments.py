"""Segments of shared memory that processes have open or mapped."""

import os
from pathlib import Path

from ps_common.sockets.shared_memory import LABEL


def open_in(pid: int) -> int:
    """By the process with this id: descriptors, and mappings."""
    process = Path(f"/proc/{pid}")
    files = [_target(path) for path in (process / "fd").iterdir()]
    maps = (process / "maps").read_text().splitlines()
    return sum(f"/memfd:{LABEL}" in line for line in [*files, *maps])


def open_here() -> int:
    """By this process."""
    return open_in(os.getpid())


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # it is closed meanwhile
        return ""
