"""
What a lossy codec leaves out of one gradient is added to the next: error feedback (Seide et al. 2014; Karimireddy et
al. 2019). Nothing of what the worker has learned is dropped, it only arrives later.
"""

import torch
from torch import Tensor

from common.protocol.codecs import CODECS
from common.protocol.tensors import Schema


class GradientEncoder:
    """Gradients of one worker to bytes, one after another."""

    def __init__(self, codec: str, schema: Schema) -> None:
        self.codec = codec
        self._schema = schema
        self._left_out = torch.zeros(schema.weights) if CODECS[codec].needs_error_feedback else None

    def encode(self, gradient: Tensor) -> memoryview:
        """The bytes of a gradient [P], which may be a view of it. It is only read."""
        codec, schema = CODECS[self.codec], self._schema
        if self._left_out is None:
            return codec.encode(gradient, schema.statistics)
        wanted = gradient.clone()
        of_weights = wanted[: schema.weights].add_(self._left_out)
        encoded = codec.encode(wanted, schema.statistics)
        sent = codec.decode([encoded], schema.size, schema.statistics)[: schema.weights]
        # A gradient that is not finite is discarded by the server, and must not spoil all that follow.
        torch.nan_to_num(torch.sub(of_weights, sent, out=self._left_out), 0, 0, 0, out=self._left_out)
        return encoded
