"""
A network on flat vectors: weights [P] are copied into its parameters, and their gradients are views into one vector.

Parameters keep their own memory, so that whatever a module holds of it beside them, such as a view that was made once,
follows as it does where torch's optimizers write. The gradient is ready to be pushed when the backward pass ends. Each
has its own memory, because the resend buffer keeps a push until it is durable.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from ps_common.buffer_pool import BufferPool
from ps_common.errors import SettingsError
from ps_common.protocol.tensors import MAX_ELEMENTS, MAX_TENSORS, BlockSpec, Schema, TensorSpec
from rl_agent.networks.running_statistics import take_added


@dataclass(frozen=True)
class Block:
    """
    Parameters that the server moves in a way of their own, and that a push may move alone.

    They are those whose names begin with one of `parameters`, and belong to no block before.
    """

    name: str
    parameters: tuple[str, ...]
    learning_rate: float = 1.0  # by which that of the run is multiplied
    optimizer: Mapping[str, float] = field(default_factory=dict)  # settings of the run's optimizer that are others here
    # Greatest norm of the block's gradient; 0: not clipped; None: clipped with all others that have none of their own.
    gradient_clip: float | None = None


class FlatNetwork:
    """Binds a network to its flat vectors: first the parameters (weights), then the buffers (statistics)."""

    def __init__(
        self,
        network: nn.Module,
        memory: Callable[[int], np.ndarray | None] = lambda _: None,
        *,
        blocks: Sequence[Block] = (),
    ) -> None:
        """
        `memory(size)` allocates a float32 array for a gradient, or returns None: then it lies in private memory. Raises
        SettingsError for a block without parameters.
        """
        self._network = network
        self.schema: Schema = schema_of(network, blocks)
        self._clips = {block.name: block.gradient_clip for block in blocks if block.gradient_clip is not None}
        self._parameters = dict(network.named_parameters())
        self._tensors = self._parameters | dict(network.named_buffers())
        self._device = next(iter(self._parameters.values())).device
        self._pool = BufferPool(self.schema.size, kept=None, elsewhere=memory)

    @property
    def weights(self) -> Tensor:
        """A copy [P] of the network's weights, float32 on the CPU."""
        return flatten(self._tensors)

    def load(self, weights: Tensor) -> None:
        """Copy weights [P] into the network."""
        for name, view in self.schema.views(weights.to(self._device)).items():
            self._tensors[name].data.copy_(view)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """In this block, which computes a loss and its gradient, the network is in training mode: dropout is on."""
        self._network.train()
        try:
            yield
        finally:
            self._network.eval()

    def gradient_of(self, loss: Tensor, *, clip: float, blocks: Sequence[str] = ()) -> tuple[Tensor, float]:
        """
        The gradient [P] of a scalar loss, on the CPU, and its Euclidean norm before clipping.

        A gradient longer than `clip` is scaled down to it (0: never); the part of a block with a clip of its own, to
        that alone. It is 0 outside of `blocks`; () are all. The positions of statistics hold the increments of the
        statistics. The returned vector is never written to again.
        """
        gradient = self._zeros()
        # The backward pass adds to an existing gradient in place, so the views stay views.
        views = self.schema.views(gradient)
        for name, parameter in self._parameters.items():
            parameter.grad = views[name]
        loss.backward()  # type: ignore[no-untyped-call]
        of_weights = gradient[: self.schema.weights]
        for place in self.schema.at_rest(blocks):
            of_weights[place] = 0
        norm = float(torch.linalg.vector_norm(of_weights))
        if self._clips:
            self._clip_blocks(of_weights, clip)
        elif clip and norm > clip:
            of_weights.mul_(clip / norm)
        for name, added in take_added(self._network).items():
            views[name].copy_(added)
        return gradient.cpu(), norm

    def _clip_blocks(self, gradient: Tensor, clip: float) -> None:
        """Clip each block with a clip of its own, and all others together."""
        parts: dict[str, list[Tensor]] = {}
        for place, block in self.schema.blocks:
            parts.setdefault(block.name if block.name in self._clips else "", []).append(gradient[place])
        for name, of_block in parts.items():
            most, norm = self._clips.get(name, clip), float(torch.linalg.vector_norm(torch.cat(of_block)))
            if most and norm > most:
                torch._foreach_mul_(of_block, most / norm)

    def _zeros(self) -> Tensor:
        """[P] on the network's device; on the CPU from a pool, which reuses memory once no reference to it is left."""
        if self._device.type != "cpu":
            return torch.zeros(self.schema.size, device=self._device)
        return torch.from_numpy(self._pool.take()).zero_()


def check_size(network: nn.Module, *, flag: str, remedy: str) -> None:
    """Raises SettingsError for a network that is larger than a run can have, which `flag` names."""
    tensors = [*network.parameters(), *network.buffers()]
    size = sum(tensor.numel() for tensor in tensors)
    if size > MAX_ELEMENTS:
        raise SettingsError(f"{flag}: it would have {size:,} parameters, and a run may have {MAX_ELEMENTS:,}; {remedy}")
    if len(tensors) > MAX_TENSORS:
        raise SettingsError(
            f"{flag}: it would have {len(tensors):,} tensors, and a run may have {MAX_TENSORS:,}; {remedy}"
        )


def schema_of(network: nn.Module, blocks: Sequence[Block] = ()) -> Schema:
    """
    The network's parameters as weights, then its buffers as statistics, each in the network's own order.

    Raises SettingsError for a block without parameters.
    """
    weights = [
        TensorSpec(name, tuple(tensor.shape), block=_spec_of(name, blocks))
        for name, tensor in network.named_parameters()
    ]
    if empty := {block.name for block in blocks} - {spec.block.name for spec in weights if spec.block}:
        raise SettingsError(
            f"block {min(empty)!r} has no parameters; there are {', '.join(one.name for one in weights)}"
        )
    statistics = [TensorSpec(name, tuple(tensor.shape), role="statistic") for name, tensor in network.named_buffers()]
    return Schema(weights + statistics)


def _spec_of(parameter: str, blocks: Sequence[Block]) -> BlockSpec | UnsetType:
    found = next((block for block in blocks if parameter.startswith(block.parameters)), None)
    if found is None:
        return UNSET
    return BlockSpec(name=found.name, learning_rate=found.learning_rate, optimizer=dict(found.optimizer))


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """A new flat float32 vector [P] on the CPU with the values of the named tensors, in their order."""
    return torch.cat([tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()])


def move_towards(follower: nn.Module, leader: nn.Module, share: float = 1.0) -> None:
    """Move the parameters of `follower` by this share of the way to those of an equal module, and copy its buffers."""
    with torch.no_grad():
        mine, its = list[Tensor](follower.parameters()), list[Tensor](leader.parameters())
        if share == 1.0:
            torch._foreach_copy_(mine, its)  # a way from NaN has no end
        else:
            torch._foreach_lerp_(mine, its, share)
        for its_copy, buffer in zip(follower.buffers(), leader.buffers(), strict=True):
            its_copy.copy_(buffer)
