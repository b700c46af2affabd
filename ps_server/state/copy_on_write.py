"""A vector whose present values can be held while it goes on changing."""

import weakref

import numpy as np
import torch
from torch import Tensor

from common.buffer_pool import BufferPool


class CopyOnWriteVector:
    """
    A float32 vector [P] that changes where it lies, unless somebody holds its values: then it goes on in a copy.

    So who reads each version before the next costs no copy, and however many hold one version cost one.
    """

    def __init__(self, values: Tensor, pool: BufferPool) -> None:
        """`values` [P] are copied."""
        self._pool = pool
        self._held: weakref.ref[np.ndarray] | None = None  # what all who hold the present values have a view of
        self.copies = 0
        self._move(values)

    def share(self) -> Tensor:
        """The present values [P]. They stay as they are for as long as this, or any view of it, is held."""
        array = self._held() if self._held is not None else None
        if array is None:
            # An array's view of a view would hold only the first one; of a memoryview it holds that.
            array = np.frombuffer(self._array.data, dtype=np.float32)
            self._held = weakref.ref(array)
        return torch.from_numpy(array)

    def writable(self) -> Tensor:
        """The values [P], to be changed in place."""
        if self._is_held():
            self.copies += 1
            self._move(self.values)
        return self.values

    def replace(self, values: Tensor) -> None:
        """Take over other values [P]. Nobody needs a copy of the former ones: whoever holds them has them."""
        if self._is_held():
            self._move(values)
        else:
            self.values.copy_(values)

    def _is_held(self) -> bool:
        return self._held is not None and self._held() is not None

    def _move(self, values: Tensor) -> None:
        self._array = self._pool.take()
        self.values = torch.from_numpy(self._array).copy_(values)
        self._held = None
