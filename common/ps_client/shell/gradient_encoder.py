"""
Gradients in a codec, with error feedback: the error of a lossy codec on one gradient is added to the next (Seide et al.
2014; Karimireddy et al. 2019). No part is lost; some parts arrive later.
"""

import torch
from torch import Tensor

from ps_common.protocol.codecs import CODECS
from ps_common.protocol.tensors import ABSURD_NORM, Schema, norm_of


class GradientEncoder:
    """Encodes the gradients of one worker, one after another."""

    def __init__(self, codec: str, schema: Schema) -> None:
        self.codec = codec
        self._schema = schema
        self._residual = torch.zeros(schema.weights) if CODECS[codec].needs_error_feedback else None

    def encode(self, gradient: Tensor, *, norm: float = 0.0, blocks: tuple[str, ...] = ()) -> memoryview:
        """
        The bytes of a gradient [P], possibly a view of it. The gradient is not changed. The error that is left in a
        block that it does not move waits for one that does.

        The servers discard one with an absurd norm, here or in the whole that it is a range of: no part of it arrives.
        """
        codec, schema = CODECS[self.codec], self._schema
        if self._residual is None or not norm <= ABSURD_NORM >= norm_of(gradient, schema.weights):
            return codec.encode(gradient, schema.statistics)
        wanted = gradient.clone()
        of_weights = wanted[: schema.weights].add_(self._residual)
        waiting = [(place, self._residual[place].clone()) for place in schema.at_rest(blocks)]
        for place, _ in waiting:
            of_weights[place] = 0
        encoded = codec.encode(wanted, schema.statistics)
        sent = codec.decode([encoded], schema.size, schema.statistics)[: schema.weights]
        # An element may be too large for the codec. It must not spoil the gradients after it.
        torch.nan_to_num(torch.sub(of_weights, sent, out=self._residual), 0, 0, 0, out=self._residual)
        for place, left in waiting:
            self._residual[place] = left
        return encoded
