import itertools
import math
import struct
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ps_common.errors import WireError
from ps_common.protocol.codecs import CODECS
from tests.rows import row

FLOAT32 = CODECS["float32"]


each_codec = pytest.mark.parametrize("codec", CODECS)


def packed(numbers: list[float]) -> bytes:
    """Ground truth: little-endian IEEE 754, one number at a time."""
    return b"".join(struct.pack("<f", number) for number in numbers)


def there_and_back(codec: str, vector: torch.Tensor, statistics: int = 0) -> torch.Tensor:
    return CODECS[codec].decode([bytes(CODECS[codec].encode(vector, statistics))], len(vector), statistics)


@each_codec
def test_every_codec_decodes_to_a_writable_float32_vector(codec: str) -> None:
    vector = torch.linspace(-1, 1, 1037)
    decoded = there_and_back(codec, vector)
    assert (decoded.shape, decoded.dtype) == (vector.shape, torch.float32)
    decoded.add_(1)
    assert decoded.mean().item() == pytest.approx(1, abs=0.01)


@each_codec
@pytest.mark.parametrize("weights", [0, 5, 301])
def test_statistics_are_exact_in_every_codec(codec: str, weights: int) -> None:
    statistics = torch.tensor([1.0000001, 16777215.0, 1e-30])
    decoded = there_and_back(codec, torch.cat([torch.randn(weights), statistics]), statistics=3)
    assert torch.equal(decoded[weights:], statistics)


@each_codec
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_survive_every_codec(codec: str, broken: float) -> None:
    """The server must see that the gradient is broken."""
    vector = torch.ones(600)
    vector[300] = broken
    assert not torch.isfinite(there_and_back(codec, vector)).all()


@each_codec
@given(st.lists(st.integers(0, 3000)))
def test_any_codec_may_be_cut_anywhere(codec: str, places: list[int]) -> None:
    vector = torch.linspace(-1, 1, 333)
    whole = bytes(CODECS[codec].encode(vector, 2))
    cuts = [0, *sorted(min(place, len(whole)) for place in places), len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(cuts)]
    assert torch.equal(CODECS[codec].decode(pieces, 333, 2), there_and_back(codec, vector, 2))


@each_codec
def test_bytes_too_few_or_too_many_are_refused_by_every_codec(codec: str) -> None:
    whole = bytes(CODECS[codec].encode(torch.ones(100), 1))
    for wrong in (whole[:-1], whole + b"\0", b""):
        with pytest.raises(WireError, match=f"a {codec} vector of 100 elements takes {len(whole)} bytes"):
            CODECS[codec].decode([wrong], 100, 1)


def test_int8_is_off_by_less_than_half_a_step_of_its_block() -> None:
    vector = torch.cat([torch.randn(256) * 100, torch.randn(256) * 1e-6, torch.randn(88)])
    off = (there_and_back("int8", vector) - vector).abs()
    for block in range(0, 600, 256):
        largest = vector[block : block + 256].abs().max()
        assert off[block : block + 256].max() <= largest / 254 * 1.0001


def test_topk_keeps_the_largest_as_int8_and_nothing_else() -> None:
    vector = torch.randn(1280)
    decoded = there_and_back("topk", vector)
    kept = decoded != 0
    assert kept.sum() == 320
    assert torch.equal(decoded[kept], there_and_back("int8", vector[kept]))
    assert vector[kept].abs().min() >= vector[~kept].abs().max()


def test_a_bitmap_that_does_not_fit_its_values_is_refused() -> None:
    for bits in [0b0, 0b11, 0b1111, 0b11 | 1 << 10, 2**16 - 1]:
        with row(bits), pytest.raises(WireError, match="a topk vector of 10 elements must mark 3"):
            CODECS["topk"].decode([struct.pack("<Hf3b", bits, 2.0, 127, 127, 127)], 10)


def test_bytes_that_are_not_ours_to_write_stay_as_they_were() -> None:
    for kind, pieces in product([bytes, bytearray, memoryview], [1, 2]):
        with row(kind, pieces):
            numbers = packed([1.0, 2.0])
            buffers = [kind(numbers[at : at + 8 // pieces]) for at in range(0, 8, 8 // pieces)]
            decoded = FLOAT32.decode(buffers, 2)
            assert decoded.tolist() == [1.0, 2.0]
            decoded.fill_(9)
            assert numbers == packed([1.0, 2.0])
