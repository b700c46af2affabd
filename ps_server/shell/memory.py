"""The memory of this process, as glibc and Linux count it."""

import ctypes
from pathlib import Path

from ps_common.program.resources import of_glibc

KERNEL_NAMES = {"VmRSS": "memory_bytes", "VmHWM": "memory_peak_bytes"}


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
    malloc_trim = of_glibc("malloc_trim")
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


_mallinfo2 = of_glibc("mallinfo2")
if _mallinfo2 is not None:
    _mallinfo2.restype = _MallInfo
