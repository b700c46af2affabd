"""
How many processes can compute at once on this machine: the cores that this process may use.

A container often sees every core of its host and may use a part of their time. The limit of its control group counts,
and that of each group around it: version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). Part of a core counts as none,
except the first.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")  # lines NUMBER:CONTROLLERS:PATH; 0::PATH is that of version 2
GROUPS = Path("/sys/fs/cgroup")


def usable_cores(*, membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> int:
    """At least 1."""
    # Only Linux has an affinity.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(int, _limits(membership, groups))]))


def _limits(membership: Path, groups: Path) -> Iterator[float]:
    """Cores by the limits of this process's control groups."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _limits_above(groups, path, _limit_of_version_2)
        elif "cpu" in controllers.split(","):
            for mounted in (groups / controllers, groups / "cpu"):
                yield from _limits_above(mounted, path, _limit_of_version_1)


def _limits_above(mounted: Path, path: str, limit_of: Callable[[Path], float]) -> Iterator[float]:
    """Of a group and those around it. Inside a container its own group may be mounted as the root."""
    parts = Path(path).parts[1:]
    for depth in range(len(parts) + 1):
        with contextlib.suppress(OSError, ValueError):  # no such group here, or no limit
            yield limit_of(mounted.joinpath(*parts[:depth]))


def _limit_of_version_2(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
    return float(int(quota) / int(period))  # "max" raises ValueError


def _limit_of_version_1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
    if quota <= 0:
        raise ValueError("no limit")
    return quota / int((group / "cpu.cfs_period_us").read_text(encoding="utf-8"))
