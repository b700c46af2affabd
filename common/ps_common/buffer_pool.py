"""
A pool of buffers for vectors. A buffer returns to the pool when its last view, maybe inside a socket's queue, is
dropped.

A fresh buffer of some megabytes costs more than the copy into it, because the kernel hands out zeroed pages one by one.
"""

import weakref
from collections import deque
from collections.abc import Callable

import numpy as np


class BufferPool:
    """
    Buffers of `size` float32. The pool keeps up to `kept` free ones, all with None.

    Buffers of `elsewhere`, which are freed there, are taken first.
    """

    def __init__(
        self, size: int, *, kept: int | None, elsewhere: Callable[[int], np.ndarray | None] = lambda _: None
    ) -> None:
        self._size = size
        self._elsewhere = elsewhere
        self._free: deque[np.ndarray] = deque(maxlen=kept)

    def take(self) -> np.ndarray:
        """A float32 array [size] of undefined content; it is returned when nothing refers to it any more."""
        if (array := self._elsewhere(self._size)) is not None:
            return array
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = np.empty(self._size, dtype=np.float32)
        view = buffer.view()
        weakref.finalize(view, self._free.append, buffer).atexit = False
        return view
