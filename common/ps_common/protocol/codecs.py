"""
How a flat float32 vector becomes bytes and back. HELLO and WELCOME list the codecs that each side supports.

float32     little-endian IEEE 754, 4 bytes an element; no copy on little-endian machines
bfloat16    the upper half of that, rounded to nearest even; 2 bytes
float16     IEEE 754 half precision; 2 bytes; beyond ±65504 infinite
int8        blocks of 256 elements: a float32 scale each, then all elements in 127ths of their scale; 1.02 bytes
topk        the largest quarter of the elements, the others are 0: a bit for each element that marks those that are
            sent, then their values as int8; 0.38 bytes

delta       what has changed of bfloat16 weights from one version to another: see deltas.py
none        no vector at all: a push that counts steps alone

int8 and topk drop so much that the sender needs error feedback: see common/ps_client/shell/gradient_encoder.py.

Statistics are counts and sums at the end of a vector: in every codec they travel as float32.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ps_common.errors import UnknownCodec, WireError
from ps_common.protocol.deltas import DELTA
from ps_common.protocol.tensors import ELEMENT_BYTES, vector_bytes
from ps_common.protocol.wire import Buffer

BLOCK = 256  # elements with one scale in int8


class Float32:
    """
    Bytes as they lie in memory. `encode` returns a view of the vector, which must not change while the view is in use;
    `decode` returns a view of the buffer where that is possible.
    """

    for_weights, needs_error_feedback, overflow = True, False, math.inf

    def encode(self, vector: Tensor, statistics: int = 0) -> memoryview:
        return vector.numpy().astype("<f4", copy=False).data.cast("B")

    def decode(self, buffers: Sequence[Buffer], size: int, statistics: int = 0) -> Tensor:
        views = _views("float32", buffers, size, ELEMENT_BYTES * size)
        if len(views) == 1 and not views[0].readonly and sys.byteorder == "little":
            return torch.frombuffer(views[0], dtype=torch.float32)
        return torch.from_numpy(_joined(views).view("<f4").astype(np.float32, copy=False))


@dataclass(frozen=True)
class Packed:
    """
    `pack`: elements [W] → arrays whose bytes follow each other. `unpack`: these bytes (uint8), and W → elements [W].
    `length`: W → number of bytes. `for_weights`: weights may travel so, not only gradients. `needs_error_feedback`: the
    sender must add what one vector drops to the next. `overflow`: elements of at least this magnitude become infinite.
    """

    name: str
    pack: Callable[[Tensor], list[np.ndarray]]
    unpack: Callable[[np.ndarray, int], Tensor]
    length: Callable[[int], int]
    for_weights: bool = False
    needs_error_feedback: bool = False
    overflow: float = math.inf

    def encode(self, vector: Tensor, statistics: int = 0) -> memoryview:
        """A vector [P], of which the last elements are statistics, as one buffer."""
        weights, rest = vector[: len(vector) - statistics], vector[len(vector) - statistics :]
        parts = [*self.pack(weights), rest.numpy().astype("<f4", copy=False)]
        return np.concatenate([part.view(np.uint8).reshape(-1) for part in parts]).data

    def decode(self, buffers: Sequence[Buffer], size: int, statistics: int = 0) -> Tensor:
        """The vector [P] in buffers that together hold its bytes. Raises WireError when they do not."""
        packed = self.length(size - statistics)
        data = _joined(_views(self.name, buffers, size, packed + ELEMENT_BYTES * statistics))
        weights = self.unpack(data[:packed], size - statistics)
        if not statistics:
            return weights
        return torch.cat([weights, torch.from_numpy(data[packed:].copy().view("<f4").astype(np.float32, copy=False))])


def _pack_bfloat16(elements: Tensor) -> list[np.ndarray]:
    return [elements.to(torch.bfloat16).view(torch.int16).numpy().astype("<i2", copy=False)]


def _unpack_bfloat16(data: np.ndarray, size: int) -> Tensor:
    halves = data.view("<i2").astype(np.int16, copy=False)
    return torch.from_numpy(halves).view(torch.bfloat16).to(torch.float32)


def _pack_float16(elements: Tensor) -> list[np.ndarray]:
    return [elements.to(torch.float16).numpy().astype("<f2", copy=False)]


def _unpack_float16(data: np.ndarray, size: int) -> Tensor:
    return torch.from_numpy(data.view("<f2").astype(np.float32))


def _pack_int8(elements: Tensor) -> list[np.ndarray]:
    blocks = torch.nn.functional.pad(elements, (0, -len(elements) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(1)
    # A block of zeros has the scale 0. NaN and infinity make the scale so, and return when decoding multiplies by it.
    steps = (blocks / (scales / 127).clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(1)).round()
    return [
        scales.numpy().astype("<f4", copy=False),
        steps.nan_to_num(0).clamp(-127, 127).to(torch.int8).view(-1)[: len(elements)].numpy(),
    ]


def _unpack_int8(data: np.ndarray, size: int) -> Tensor:
    count = math.ceil(size / BLOCK)
    scales = torch.from_numpy(data[: ELEMENT_BYTES * count].view("<f4").astype(np.float32))
    steps = torch.from_numpy(data[ELEMENT_BYTES * count :].view(np.int8).astype(np.float32))
    blocks = torch.nn.functional.pad(steps, (0, -size % BLOCK)).view(-1, BLOCK)
    return (blocks * (scales / 127).unsqueeze(1)).view(-1)[:size]


def _length_of_int8(size: int) -> int:
    return ELEMENT_BYTES * math.ceil(size / BLOCK) + size


def _pack_topk(elements: Tensor) -> list[np.ndarray]:
    sent = np.zeros(len(elements), dtype=np.bool_)
    sent[elements.abs().topk(_quarter(len(elements)), sorted=False).indices.numpy()] = True
    values = elements[torch.from_numpy(np.flatnonzero(sent))]
    return [np.packbits(sent, bitorder="little"), *_pack_int8(values)]


def _unpack_topk(data: np.ndarray, size: int) -> Tensor:
    bits, count = math.ceil(size / 8), _quarter(size)
    places = np.flatnonzero(np.unpackbits(data[:bits], bitorder="little").view(np.bool_))
    if len(places) != count or (count and places[-1] >= size):
        raise WireError(f"the bits of a topk vector of {size} elements must mark {count} as sent")
    elements = torch.zeros(size)
    elements[torch.from_numpy(places)] = _unpack_int8(data[bits:], count)
    return elements


def _length_of_topk(size: int) -> int:
    return math.ceil(size / 8) + _length_of_int8(_quarter(size))


def _quarter(size: int) -> int:
    """The number of elements that topk sends."""
    return math.ceil(size / 4)


def _views(name: str, buffers: Sequence[Buffer], size: int, length: int) -> list[memoryview]:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    if (have := sum(map(len, views))) != length:
        raise WireError(f"a {name} vector of {size} elements takes {length} bytes, not {have}")
    return views


def _joined(views: Sequence[memoryview]) -> np.ndarray:
    """A copy of all their bytes."""
    whole = np.empty(vector_bytes(views), dtype=np.uint8)
    at = 0
    for view in views:
        whole[at : at + view.nbytes] = np.frombuffer(view, dtype=np.uint8)
        at += view.nbytes
    return whole


Codec = Float32 | Packed

CODECS: dict[str, Codec] = {
    "float32": Float32(),
    "bfloat16": Packed("bfloat16", _pack_bfloat16, _unpack_bfloat16, lambda size: 2 * size, for_weights=True),
    "float16": Packed(
        "float16", _pack_float16, _unpack_float16, lambda size: 2 * size, for_weights=True, overflow=65520.0
    ),
    "int8": Packed("int8", _pack_int8, _unpack_int8, _length_of_int8, needs_error_feedback=True),
    "topk": Packed("topk", _pack_topk, _unpack_topk, _length_of_topk, needs_error_feedback=True),
}

NO_GRADIENT = "none"  # the codec of a push that counts steps alone
CODEC_NAMES = (*CODECS, DELTA, NO_GRADIENT)  # of those that a message may name


def codec_named(name: str, *, for_weights: bool = False) -> Codec:
    """The codec that a message names. Raises UnknownCodec, also for one that loses too much for weights."""
    if name not in CODECS:
        raise UnknownCodec(f"there is no codec {name[:40]!r}; there are {', '.join(CODECS)}")
    if for_weights and not CODECS[name].for_weights:
        raise UnknownCodec(f"codec {name} loses too much for weights; it is for gradients")
    return CODECS[name]
