"""Buffers return to the pool when nothing refers to them."""

import gc

import numpy as np

from ps_common.buffer_pool import BufferPool


def test_a_buffer_that_somebody_holds_is_given_to_nobody_else() -> None:
    pool = BufferPool(3, kept=None)
    held = [pool.take() for _ in range(10)]
    assert len({buffer.ctypes.data for buffer in held}) == 10
    assert {(buffer.shape, buffer.dtype) for buffer in held} == {((3,), np.dtype(np.float32))}


def test_a_buffer_comes_back_when_the_last_view_of_it_is_dropped() -> None:
    pool = BufferPool(3, kept=None)
    taken = pool.take()
    where = taken.ctypes.data
    view = memoryview(taken)[1:]
    del taken
    gc.collect()
    assert pool.take().ctypes.data != where
    del view
    gc.collect()
    assert pool.take().ctypes.data == where
