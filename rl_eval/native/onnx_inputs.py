"""
The inputs of an ONNX: tensors of what the environment shows, and what the network sees of them.

ONNX cannot read numbers in a row of bytes. The row that the network gets is of float32 here, with the elements of a
part one after another from the number of its first byte on, which `part_of` knows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_agent.environments.spaces import (
    ActionSpace,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationSpace,
    Part,
)
from rl_agent.native_observations import Leaf, NativeObservations

OBSERVATIONS, MASK = "observations", "action_mask"
RESERVED = (
    "starts", "parameters", "values", "action_values", "actions",
    *(f"state_{number}{after}" for number in range(4) for after in ("", "_after")),
)  # fmt: skip


class Inputs(nn.Module):
    """Names and examples of the inputs; called with the inputs it gives observations [N, ...] and the mask [N, M]."""

    def __init__(self, space: ObservationSpace, actions: ActionSpace | None) -> None:
        super().__init__()
        self._space, self._actions = space, actions
        self._native: NativeObservations | None = space.native
        if self._native is not None and not space.parts and not self._native.leaves[0].path:
            self._native = None  # one array, which has its channels first here as everywhere
        if self._native is not None:
            named = [leaf.key or OBSERVATIONS for leaf in self._native.leaves]
        else:
            named = [part.kind for part in space.parts if part.kind != "mask"] or [OBSERVATIONS]
        self.names = _unlike([*named, *([MASK] if space.mask is not None else [])])

    def examples(self, count: int) -> tuple[Tensor, ...]:
        """Tensors of zeros for `count` observations."""
        zeros: list[Tensor] = []
        if self._native is not None:
            for leaf in self._native.leaves:
                first = torch.tensor(leaf.starts).reshape(leaf.shape) if leaf.counts else torch.zeros(leaf.shape)
                dtype = torch.int64 if leaf.counts else _dtype(leaf)
                zeros.append(first.to(dtype).expand(count, *leaf.shape).clone())
        else:
            shown: list[Part] | list[ObservationSpace] = [part for part in self._space.parts if part.kind != "mask"]
            zeros += [torch.zeros(count, *one.shape, dtype=_dtype(one)) for one in shown or [self._space]]
        if (mask := self._space.mask) is not None:
            size = mask.shape[0] if self._native is None or self._native.mask is None else self._native.mask.size
            zeros.append(torch.ones(count, size, dtype=torch.int8))
        return tuple(zeros)

    def forward(self, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        mask = None if self._space.mask is None else self._mask(arguments[-1])
        shown = list(arguments if mask is None else arguments[:-1])
        if self._native is not None:
            leaves = zip(self._native.leaves, shown, strict=True)
            read = [(leaf, _array(leaf, tensor)) for leaf, tensor in leaves]
            numbers = [array for leaf, array in read if leaf.channels is None]
            shown = [array for leaf, array in read if leaf.channels is not None]
            if numbers:
                shown.insert(0, torch.cat(numbers, dim=-1))
        if not self._space.parts:
            return shown[0], None
        return _row(self._space, shown if mask is None else [*shown, mask]), mask

    def _mask(self, given: Tensor) -> Tensor:
        """[N, M] of the agent's actions: a choice without any allowed option has all."""
        mask = given != 0
        native = None if self._native is None else self._native.mask
        if native is not None and native.used is not None:
            mask = mask[:, list(native.used)]
        match self._actions:
            case DiscreteActions():
                mask = mask | ~mask.any(-1, keepdim=True)
            case MultiDiscreteActions(counts=counts):
                choices = torch.split(mask, list(counts), dim=-1)
                mask = torch.cat([choice | ~choice.any(-1, keepdim=True) for choice in choices], dim=-1)
        return mask.to(torch.float32)


def _array(leaf: Leaf, shown: Tensor) -> Tensor:
    """[N, ...] as the environment shows it → float32 [N, numbers], or images with their channels first."""
    if leaf.counts:
        options = (shown.flatten(1) if leaf.shape else shown.unsqueeze(1)) - torch.tensor(leaf.starts)
        hot = [options[:, place, None] == torch.arange(count) for place, count in enumerate(leaf.counts)]
        return torch.cat(hot, dim=-1).to(torch.float32)
    match leaf.channels:
        case None:
            return (shown.flatten(1) if leaf.shape else shown.unsqueeze(1)).to(torch.float32)
        case "none":
            return shown.unsqueeze(1)
        case "last":
            return shown.permute(0, 3, 1, 2)
        case "of each frame":
            return shown.permute(0, 1, 4, 2, 3).flatten(1, 2)
    return shown


def _row(space: ObservationSpace, arrays: Sequence[Tensor]) -> Tensor:
    """float32 [N, bytes] of the arrays of the parts."""
    pieces: list[Tensor] = []
    ends = [part.offset for part in space.parts[1:]] + [space.shape[0]]
    for part, end, array in zip(space.parts, ends, arrays, strict=True):
        flat = array.flatten(1).to(torch.float32)
        pieces.append(nn.functional.pad(flat, (0, end - part.offset - flat.shape[1])))
    return torch.cat(pieces, dim=-1)


def _dtype(shown: Leaf | Part | ObservationSpace) -> torch.dtype:
    return torch.uint8 if shown.dtype == "uint8" else torch.float32


def _unlike(names: Sequence[str]) -> list[str]:
    """The names, with `observations.` before those that stand there twice, or are an output's."""
    unlike: list[str] = []
    for name in names:
        while name in unlike or name in RESERVED:
            name = f"{OBSERVATIONS}.{name}"
        unlike.append(name)
    return unlike
