"""
The cores that this process may use.

A container often sees every core of its host and may use a part of their time. The limit of its control group (version
2) counts, and that of each group around it. Part of a core counts as none, except the first.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")  # the line 0::PATH is that of version 2
GROUPS = Path("/sys/fs/cgroup")


def usable_cores(*, membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> int:
    """How many processes can compute at once: at least 1."""
    # Only Linux has an affinity.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(int, _limits(membership, groups))]))


def _limits(membership: Path, groups: Path) -> Iterator[float]:
    """Cores by the limits of this process's control groups."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    # Of this group and those around it. Inside a container its own group may be mounted as the root.
    parts = [Path(line[3:]).parts[1:] for line in lines if line.startswith("0::")]
    for path in parts:
        for depth in range(len(path) + 1):
            with contextlib.suppress(OSError, ValueError):  # no such group here, or the word max
                quota, period = groups.joinpath(*path[:depth], "cpu.max").read_text(encoding="utf-8").split()
                yield int(quota) / int(period)
