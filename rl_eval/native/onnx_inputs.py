"""
The inputs of an ONNX: a tensor of each part that the network sees, and what the network gets of them.

ONNX cannot read numbers in a row of bytes. The row that the network gets is of float32 here, with the elements of a
part one after another from the number of its first byte on, which `part_of` knows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_agent.environments.spaces import ObservationSpace, Part

OBSERVATIONS, MASK = "observations", "action_mask"


class Inputs(nn.Module):
    """Names and examples of the inputs; called with the inputs it gives observations [N, ...] and the mask [N, M]."""

    def __init__(self, space: ObservationSpace) -> None:
        super().__init__()
        self._space = space
        kinds = [MASK if part.kind == "mask" else part.kind for part in space.parts] or [OBSERVATIONS]
        earlier = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
        self.names = [f"{kind}_{before}" if before else kind for kind, before in zip(kinds, earlier, strict=True)]

    def examples(self, count: int) -> tuple[Tensor, ...]:
        """Tensors of zeros for `count` observations, and a mask that allows everything."""
        shown: Sequence[Part | ObservationSpace] = self._space.parts or [self._space]
        return tuple(
            torch.ones(count, *one.shape, dtype=torch.int8)
            if one is self._space.mask
            else torch.zeros(count, *one.shape, dtype=torch.uint8 if one.dtype == "uint8" else torch.float32)
            for one in shown
        )

    def forward(self, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        if not self._space.parts:
            return arguments[0], None
        mask = None if self._space.mask is None else (arguments[-1] != 0).to(torch.float32)
        return _row(self._space, arguments if mask is None else [*arguments[:-1], mask]), mask


def _row(space: ObservationSpace, arrays: Sequence[Tensor]) -> Tensor:
    """float32 [N, bytes] of the arrays of the parts."""
    pieces: list[Tensor] = []
    ends = [part.offset for part in space.parts[1:]] + [space.shape[0]]
    for part, end, array in zip(space.parts, ends, arrays, strict=True):
        flat = array.flatten(1).to(torch.float32)
        pieces.append(nn.functional.pad(flat, (0, end - part.offset - flat.shape[1])))
    return torch.cat(pieces, dim=-1)
