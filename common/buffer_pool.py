"""
Memory for vectors that several parts of a program hold for a while, used again when nobody holds it any more.

A fresh buffer of some megabytes costs more than the copy into it (the kernel hands out zeroed pages one by one), so a
buffer comes back when the last view of it, maybe inside a socket's queue, is dropped.
"""

import weakref
from collections import deque
from collections.abc import Callable

import numpy as np


class BufferPool:
    """
    Buffers of `size` float32. Up to `kept` of them wait to be used again; with None as many as were ever in use.

    Those that `elsewhere` has, and takes back, are used first.
    """

    def __init__(
        self, size: int, *, kept: int | None, elsewhere: Callable[[int], np.ndarray | None] = lambda _: None
    ) -> None:
        self._size = size
        self._elsewhere = elsewhere
        self._free: deque[np.ndarray] = deque(maxlen=kept)

    def take(self) -> np.ndarray:
        """A float32 array [size] of undefined content that returns by itself to where it is from."""
        if (array := self._elsewhere(self._size)) is not None:
            return array
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = np.empty(self._size, dtype=np.float32)
        view = buffer.view()
        weakref.finalize(view, self._free.append, buffer).atexit = False
        return view
