"""Deltas of weights: known bytes, no loss for any bytes, and refusals that take no memory."""

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.errors import WireError
from ps_common.protocol.deltas import Base
from tests.rows import row

A_MEBIBYTE = 2**20


def written_out(newer: bytes, older: bytes, weights: int) -> bytes:
    """Ground truth: what zlib compresses, one element at a time, as PROTOCOL.md says."""
    folded = []
    for new, old in zip(
        struct.unpack_from(f"<{weights}H", newer), struct.unpack_from(f"<{weights}H", older), strict=True
    ):
        difference = (new - old) % 2**16
        difference -= 2**16 if difference >= 2**15 else 0
        folded.append(2 * difference if difference >= 0 else -2 * difference - 1)
    lower, upper = bytes(one % 256 for one in folded), bytes(one // 256 for one in folded)
    return lower + upper + newer[2 * weights :]


@st.composite
def versions(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """Two versions of a vector, as any bytes, and the number of its weights."""
    weights, statistics = draw(st.integers(0, 40)), draw(st.integers(0, 3))
    size = 2 * weights + 4 * statistics
    newer, older = (draw(st.binary(min_size=size, max_size=size)) for _ in range(2))
    return newer, older, weights


@given(versions(), st.integers(0, 30))
def test_a_delta_loses_nothing_and_may_be_cut_anywhere(pair: tuple[bytes, bytes, int], cut: int) -> None:
    newer, older, weights = pair
    delta = Base(older, weights).delta_to(newer)
    assert zlib.decompress(delta) == written_out(newer, older, weights)
    assert Base(memoryview(older), weights).restored([delta[:cut], memoryview(delta)[cut:]]) == newer


GOOD = Base(bytes(20), 6).delta_to(bytes(range(20)))


def test_what_is_no_delta_of_this_length_is_refused() -> None:
    for delta in [
        b"",
        GOOD[:-1],
        GOOD[:5],
        GOOD + b"x",
        b"not zlib",
        zlib.compress(bytes(19)),
        zlib.compress(bytes(21)),
        bytes([*GOOD[:-4], *(255 - byte for byte in GOOD[-4:])]),
    ]:
        with row(delta), pytest.raises(WireError, match="delta"):
            Base(bytes(20), 6).restored([delta])


def test_a_delta_that_becomes_too_much_is_refused_before_it_takes_the_memory() -> None:
    bomb = zlib.compress(bytes(64 * A_MEBIBYTE))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="must become 20 bytes"):
            Base(bytes(20), 6).restored([bomb])
        assert tracemalloc.get_traced_memory()[1] < A_MEBIBYTE
    finally:
        tracemalloc.stop()
