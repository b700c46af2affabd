"""
What a process takes of its machine: its memory, as Linux counts it, and how glibc's malloc treats that of large
messages; its cores; and how they compute with denormal numbers.

A container often sees every core of its host and may use a part of their time. The limit of its control group (version
2) counts, and that of each group around it. Part of a core counts as none, except the first.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Options of glibc's <malloc.h>, and their names in the environment.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
MALLOC_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
KERNEL_NAMES = {"VmRSS": "memory_bytes", "VmHWM": "memory_peak_bytes"}
KEPT_BYTES = 2**26  # at the end of each heap, which is no larger
LARGEST_BYTES = 2**25  # of an allocation in a heap; larger ones are mapped apart


def keep_freed_memory() -> None:
    """
    Have malloc keep freed memory, up to KEPT_BYTES a heap, unless the environment decides that.

    ZeroMQ allocates each message, and several times where it encrypts. By default glibc returns the free end of the
    heap to the kernel, so the next message page-faults again: a round trip of 0.7 M parameters over CURVE took up to
    2,000 faults, and a third longer.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None and not MALLOC_VARIABLES & os.environ.keys():
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)


def bytes_in_use() -> int:
    """Allocated bytes of all threads, without small Python objects; 0 where the C library does not count them."""
    if _mallinfo2 is None:
        return 0
    info = _mallinfo2()
    return int(info.uordblks + info.hblkhd)


def memory_of_this_process() -> dict[str, int]:
    """Resident bytes now and at most so far, by field of the server's status; {} on other systems."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    values = dict(line.split(":", 1) for line in lines)
    return {field: 1024 * int(values[name].split()[0]) for name, field in KERNEL_NAMES.items() if name in values}


def give_back_freed_memory() -> None:
    """Return freed memory to the kernel, say after an attack. Takes some milliseconds."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


class _MallInfo(ctypes.Structure):
    """struct mallinfo2"""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _of_glibc(name: str) -> Any:
    """A function of glibc; None elsewhere, and in versions without it."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


_mallinfo2 = _of_glibc("mallinfo2")
if _mallinfo2 is not None:
    _mallinfo2.restype = _MallInfo


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


def flush_denormals() -> None:
    """
    Have this thread, and the threads that it starts, take denormal numbers for 0 and round results to 0.

    They are those nearer to 0 than 1.2e-38: processors compute with them many times slower.
    A weight that gets no gradient for some 830 updates, since its input is 0 meanwhile or its unit is dead, has a
    denormal mean in Adam: each update multiplies the mean by 0.9. Rounding then holds it at 6e-45 for ever. In runs of
    Pong 2 to 10 % of the weights are there after minutes. With 15 % an update of 0.7 M parameters takes five times as
    long.
    """
    import torch  # not at the top: programs without tensors must not wait for it

    torch.set_flush_denormal(True)
