import itertools
import math
import struct
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.codecs import CODECS
from common.errors import WireError
from common.wire import Buffer

FLOAT32 = CODECS["float32"]
ODD_NUMBERS = [0.0, -0.0, 1.5, -1e-45, 3.4e38, math.inf, -math.inf, math.nan]


def packed(numbers: list[float]) -> bytes:
    """Ground truth: little-endian IEEE 754, one number at a time."""
    return b"".join(struct.pack("<f", number) for number in numbers)


def test_float32_is_little_endian_ieee_754() -> None:
    vector = torch.tensor(ODD_NUMBERS, dtype=torch.float32)
    assert bytes(FLOAT32.encode(vector)) == packed(ODD_NUMBERS)
    assert bytes(FLOAT32.encode(FLOAT32.decode([packed(ODD_NUMBERS)], len(ODD_NUMBERS)))) == packed(ODD_NUMBERS)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.lists(st.integers(0, 80)))
def test_a_vector_may_be_cut_anywhere(numbers: list[float], places: list[int]) -> None:
    whole = packed(numbers)
    cuts = [0, *sorted(min(place, len(whole)) for place in places), len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(cuts)]
    assert FLOAT32.decode(pieces, len(numbers)).tolist() == numbers


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_gives_back_a_float32_vector_that_may_be_written_to(codec: str) -> None:
    vector = torch.linspace(-1, 1, 37)
    decoded = CODECS[codec].decode([bytes(CODECS[codec].encode(vector))], 37)
    assert (decoded.shape, decoded.dtype) == (vector.shape, torch.float32)
    decoded.add_(1)
    assert decoded.mean().item() == pytest.approx(1, abs=0.01)


@pytest.mark.skipif(sys.byteorder == "big", reason="swapping bytes takes a copy")
def test_float32_does_not_copy_what_it_may_keep() -> None:
    vector = torch.zeros(2)
    encoded = FLOAT32.encode(vector)
    vector[1] = 1.0
    assert bytes(encoded) == packed([0.0, 1.0])

    received = bytearray(packed([1.0, 2.0]))
    decoded = FLOAT32.decode([received], 2)
    received[:4] = packed([5.0])
    assert decoded.tolist() == [5.0, 2.0]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("pieces", [1, 2])
def test_bytes_that_are_not_ours_to_write_stay_as_they_were(kind: type[Buffer], pieces: int) -> None:
    numbers = packed([1.0, 2.0])
    buffers = [kind(numbers[at : at + 8 // pieces]) for at in range(0, 8, 8 // pieces)]
    decoded = FLOAT32.decode(buffers, 2)
    assert decoded.tolist() == [1.0, 2.0]
    decoded.fill_(9)
    assert numbers == packed([1.0, 2.0])


def test_a_vector_that_starts_at_an_odd_address_is_read_all_the_same() -> None:
    view = memoryview(bytearray(b"\0" + packed([1.0, -2.0])))[1:]
    assert FLOAT32.decode([view], 2).add(1).tolist() == [2.0, -1.0]


@pytest.mark.parametrize(("lengths", "size"), [([], 1), ([0], 1), ([7], 2), ([9], 2), ([8], 1), ([4, 5], 2), ([4], 0)])
def test_bytes_of_another_length_are_refused(lengths: list[int], size: int) -> None:
    with pytest.raises(WireError, match=f"{size} elements takes {4 * size} bytes, not {sum(lengths)}"):
        FLOAT32.decode([bytes(length) for length in lengths], size)
