"""The memory of large messages: kept for the next ones, counted, and given back. All of it only with glibc."""

import ctypes
import os
import sys
from typing import Any

# Of glibc's <malloc.h>, and what its documentation calls them in the environment.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
MALLOC_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
KEPT_BYTES = 2**26  # at the end of each of its heaps, which are no larger
LARGEST_BYTES = 2**25  # that a heap may hold; larger ones are mapped apart


def keep_freed_memory() -> None:
    """
    Have malloc keep what is freed, up to KEPT_BYTES a heap, unless the environment says what it should do.

    ZeroMQ has each message in memory of its own, and several times over where it encrypts. As it comes glibc gives
    the system back what is free at a heap's end beyond twice the largest message seen, and each page of the next
    message is a fault again: a round trip of 0.7 M parameters over CURVE took up to 2,000 of them, and a third longer.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None and not MALLOC_VARIABLES & os.environ.keys():
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)


def bytes_in_use() -> int:
    """What was allocated and not freed, by all threads, beside small Python objects; 0 where nobody counts it."""
    if _mallinfo2 is None:
        return 0
    info = _mallinfo2()
    return int(info.uordblks + info.hblkhd)


def give_back_freed_memory() -> None:
    """To the system: after an attack that was ended, say. Takes some milliseconds."""
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
    """A function of the C library, if it is glibc's, of Linux, and new enough; else None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


_mallinfo2 = _of_glibc("mallinfo2")
if _mallinfo2 is not None:
    _mallinfo2.restype = _MallInfo
