"""
Deltas of weights: how the bfloat16 bytes of one version become those of a newer one, without loss and in fewer bytes.

From one update to the next most elements change by a few units of their last bit, or not at all. The differences of
the halves, as integers, are folded so that small ones of either sign have an upper byte of 0. All lower bytes, then all
upper ones are compressed by zlib, which finds few different lower bytes, and upper ones that are nearly all 0.

PROTOCOL.md, section 3, has the format. This file does not know which peer has which version.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ps_common.errors import WireError
from ps_common.protocol.wire import Buffer

DELTA: Literal["delta"] = "delta"  # the codec of weights in a request that takes deltas, and in a reply that is one
WHOLE: Literal["bfloat16"] = "bfloat16"  # that of a reply for which there is no base
LEVEL, STRATEGY = 1, zlib.Z_RLE  # of zlib: runs and Huffman codes; matches of other strings cost more than they save


@dataclass(frozen=True)
class Base:
    """A version that deltas lead away from: its bytes in bfloat16, which begin with so many weights."""

    encoded: Buffer
    weights: int

    def delta_to(self, newer: Buffer) -> bytes:
        """The delta from this version to the one with these bytes in bfloat16."""
        difference = _halves(newer, self.weights) - _halves(self.encoded, self.weights)  # modulo 2^16
        folded = ((difference << 1) ^ (difference >> 15)).astype("<i2", copy=False)
        by_significance = folded.view(np.uint8).reshape(self.weights, 2).T.tobytes()
        compressor = zlib.compressobj(LEVEL, strategy=STRATEGY)
        compressed = compressor.compress(by_significance) + compressor.compress(newer[2 * self.weights :])
        return compressed + compressor.flush()

    def restored(self, delta: Sequence[Buffer]) -> bytes:
        """
        The bytes in bfloat16 of the version that a delta leads to.

        Raises WireError when the buffers together hold no delta of this length; never takes more memory than it.
        """
        length, stream = len(self.encoded), zlib.decompressobj()
        try:
            data = stream.decompress(b"".join(delta), length + 1)
        except zlib.error as error:
            raise WireError(f"a delta that zlib cannot read: {error}") from error
        if len(data) != length or not stream.eof or stream.unused_data:
            raise WireError(f"a delta must become {length} bytes of {WHOLE} weights")
        lower_and_upper = np.frombuffer(data, np.uint8, 2 * self.weights).reshape(2, self.weights)
        folded = np.ascontiguousarray(lower_and_upper.T).view("<u2").reshape(self.weights)
        difference = (folded >> 1) ^ -(folded & 1)
        halves = _halves(self.encoded, self.weights) + difference.astype(np.int16)
        return halves.astype("<i2", copy=False).tobytes() + data[2 * self.weights :]


def _halves(encoded: Buffer, weights: int) -> np.ndarray:
    return np.frombuffer(encoded, "<i2", weights).astype(np.int16, copy=False)
