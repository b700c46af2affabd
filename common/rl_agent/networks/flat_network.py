"""
A network on flat vectors: its parameters are views into one vector [P], and their gradients are views into another.

Loading weights is one copy, and the gradient is ready to be pushed when the backward pass ends. Each gradient has its
own memory, because the resend buffer keeps a push until it is durable.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ps_common.buffer_pool import BufferPool
from ps_common.protocol.tensors import Schema, TensorSpec
from rl_agent.networks.running_statistics import take_added


class FlatNetwork:
    """Binds a network to its flat vectors: first the parameters (weights), then the buffers (statistics)."""

    def __init__(self, network: nn.Module, memory: Callable[[int], np.ndarray | None] = lambda _: None) -> None:
        """`memory(size)` allocates a float32 array for a gradient, or returns None: then it lies in private memory."""
        self._network = network
        parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
        tensors = parameters | buffers
        self.schema: Schema = schema_of(network)
        device = next(iter(parameters.values())).device
        self._weights = flatten(tensors).to(device)
        self._parameters = parameters
        self._pool = BufferPool(self.schema.size, kept=None, elsewhere=memory)
        for name, view in self.schema.views(self._weights).items():
            tensors[name].data = view

    @property
    def weights(self) -> Tensor:
        """[P] float32 on the CPU; shares memory with the network when that is on the CPU."""
        return self._weights.cpu()

    def load(self, weights: Tensor) -> None:
        """Copy weights [P] into the network."""
        self._weights.copy_(weights)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """In this block, which computes a loss and its gradient, the network is in training mode: dropout is on."""
        self._network.train()
        try:
            yield
        finally:
            self._network.eval()

    def gradient_of(self, loss: Tensor, *, clip: float) -> tuple[Tensor, float]:
        """
        The gradient [P] of a scalar loss, on the CPU, and its Euclidean norm before clipping.

        A gradient longer than `clip` is scaled down to it (0: never). The positions of statistics hold the increments
        of the statistics. The returned vector is never written to again.
        """
        gradient = self._zeros()
        # The backward pass adds to an existing gradient in place, so the views stay views.
        views = self.schema.views(gradient)
        for name, parameter in self._parameters.items():
            parameter.grad = views[name]
        loss.backward()  # type: ignore[no-untyped-call]
        of_weights = gradient[: self.schema.weights]
        norm = float(torch.linalg.vector_norm(of_weights))
        if clip and norm > clip:
            of_weights.mul_(clip / norm)
        for name, added in take_added(self._network).items():
            views[name].copy_(added)
        return gradient.cpu(), norm

    def _zeros(self) -> Tensor:
        """[P] on the network's device; on the CPU from a pool, which reuses memory once no reference to it is left."""
        if self._weights.device.type != "cpu":
            return torch.zeros_like(self._weights)
        return torch.from_numpy(self._pool.take()).zero_()


def schema_of(network: nn.Module) -> Schema:
    """The network's parameters as weights, then its buffers as statistics, each in the network's own order."""
    weights = [TensorSpec(name, tuple(tensor.shape)) for name, tensor in network.named_parameters()]
    statistics = [TensorSpec(name, tuple(tensor.shape), role="statistic") for name, tensor in network.named_buffers()]
    return Schema(weights + statistics)


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """A new flat float32 vector [P] on the CPU with the values of the named tensors, in their order."""
    return torch.cat([tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()])


def move_towards(follower: nn.Module, leader: nn.Module, share: float = 1.0) -> None:
    """Move the parameters of `follower` by this share of the way to those of an equal module, and copy its buffers."""
    with torch.no_grad():
        torch._foreach_lerp_([*follower.parameters()], [*leader.parameters()], share)
        for mine, its in zip(follower.buffers(), leader.buffers(), strict=True):
            mine.copy_(its)
