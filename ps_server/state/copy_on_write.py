"""Copy-on-write: a vector whose current values can be shared while it goes on changing."""

import weakref

import numpy as np
import torch
from torch import Tensor

from ps_common.buffer_pool import BufferPool


class CopyOnWriteVector:
    """
    A float32 vector [P] that changes in place, unless its values are shared: then the next change goes to a copy.

    A version costs no copy if its readers finish before the next update, and one copy however many readers it has.
    """

    def __init__(self, values: Tensor, pool: BufferPool) -> None:
        """`values` [P] are copied."""
        self._pool = pool
        self._shared: weakref.ref[np.ndarray] | None = None  # the current values, of which every reader has a view
        self.copies = 0
        self._move(values)

    def share(self) -> Tensor:
        """The current values [P]. They do not change as long as the returned tensor, or a view of it, exists."""
        array = self._shared() if self._shared is not None else None
        if array is None:
            # NumPy makes a view of a view refer to the base array; a memoryview keeps the reference to this one.
            array = np.frombuffer(self._array.data, dtype=np.float32)
            self._shared = weakref.ref(array)
        return torch.from_numpy(array)

    def writable(self) -> Tensor:
        if self._is_shared():
            self.copies += 1
            self._move(self.values)
        return self.values

    def replace(self, values: Tensor) -> None:
        """Replace the values [P]. The old ones are not copied: their readers have them."""
        if self._is_shared():
            self._move(values)
        else:
            self.values.copy_(values)

    def _is_shared(self) -> bool:
        return self._shared is not None and self._shared() is not None

    def _move(self, values: Tensor) -> None:
        self._array = self._pool.take()
        self.values = torch.from_numpy(self._array).copy_(values)
        self._shared = None
