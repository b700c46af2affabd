"""The memory of large messages: kept for the next ones."""

import ctypes
import os
import sys

# Of glibc's <malloc.h>, and what its documentation calls them in the environment.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
WISHES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
KEPT_BYTES = 2**26  # at the end of each of its heaps, which are no larger
LARGEST_BYTES = 2**25  # that a heap may hold; larger ones are mapped apart


def keep_freed_memory() -> None:
    """
    Have malloc keep what is freed, up to KEPT_BYTES a heap, unless the environment says what it should do.

    ZeroMQ has each message in memory of its own, and several times over where it encrypts. As it comes glibc gives
    the system back what is free at a heap's end beyond twice the largest message seen, and each page of the next
    message is a fault again: a round trip of 0.7 M parameters over CURVE took up to 2,000 of them, and a third longer.
    """
    if sys.platform == "linux" and not WISHES & os.environ.keys():
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not every Linux has glibc
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
            mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
