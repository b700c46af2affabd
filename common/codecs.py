"""
How a flat float32 vector becomes bytes and back. Which codecs both sides know is agreed in HELLO and WELCOME.

float32     little-endian IEEE 754, 4 bytes an element; no copy on little-endian machines
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.errors import WireError
from common.wire import Buffer


@dataclass(frozen=True)
class Codec:
    """
    encode: vector [P] → one buffer. It may be a view of the vector: do not write to the vector while it is in use.
    decode: buffers that together hold an encoded vector, and P → vector [P], a view of the one buffer where that is
    possible. Raises WireError when the bytes are not P elements.
    """

    encode: Callable[[Tensor], memoryview]
    decode: Callable[[Sequence[Buffer], int], Tensor]


def _encode_float32(vector: Tensor) -> memoryview:
    return vector.numpy().astype("<f4", copy=False).data.cast("B")


def _decode_float32(buffers: Sequence[Buffer], size: int) -> Tensor:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    if (have := sum(view.nbytes for view in views)) != 4 * size:
        raise WireError(f"a float32 vector of {size} elements takes {4 * size} bytes, not {have}")
    if len(views) == 1 and not views[0].readonly and sys.byteorder == "little":
        return torch.from_numpy(np.frombuffer(views[0], dtype=np.float32))
    whole = np.empty(4 * size, dtype=np.uint8)
    at = 0
    for view in views:
        whole[at : at + view.nbytes] = np.frombuffer(view, dtype=np.uint8)
        at += view.nbytes
    return torch.from_numpy(whole.view("<f4").astype(np.float32, copy=False))


CODECS: dict[str, Codec] = {"float32": Codec(_encode_float32, _decode_float32)}
