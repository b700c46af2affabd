"""How a process uses its machine: what glibc's malloc does with freed memory, and processors with denormal numbers."""

import ctypes
import os
import sys
from typing import Any

# Options of glibc's <malloc.h>, and their names in the environment.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
MALLOC_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
KEPT_BYTES = 2**26  # at the end of each heap, which is no larger
LARGEST_BYTES = 2**25  # of an allocation in a heap; larger ones are mapped apart


def keep_freed_memory() -> None:
    """
    Have malloc keep freed memory, up to KEPT_BYTES a heap, unless the environment decides that.

    ZeroMQ allocates each message, and several times where it encrypts. By default glibc returns the free end of the
    heap to the kernel, so the next message page-faults again: a round trip of 0.7 M parameters over CURVE took up to
    2,000 faults, and a third longer.
    """
    mallopt = of_glibc("mallopt")
    if mallopt is not None and not MALLOC_VARIABLES & os.environ.keys():
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)


def of_glibc(name: str) -> Any:
    """A function of glibc; None elsewhere, and in versions without it."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


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
