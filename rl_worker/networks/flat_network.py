"""
A network and the flat vectors behind it: its parameters are views into one vector [P], its gradients into another.

Loading weights is one copy, and the gradient to push lies ready when the backward pass is done. Each gradient has
memory of its own, because a push is kept until it is in a checkpoint.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from common.buffer_pool import BufferPool
from common.protocol.tensors import Schema, TensorSpec
from rl_worker.networks.normalization import take_added


class FlatNetwork:
    """Ties a network to its flat vectors: first its parameters, which are weights, then its buffers, statistics."""

    def __init__(self, network: nn.Module, memory: Callable[[int], np.ndarray | None] = lambda _: None) -> None:
        """`memory` has arrays of so many float32 for gradients, or None: then they lie in memory of our own."""
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
        """Take over weights [P]."""
        self._weights.copy_(weights)

    def gradient_of(self, loss: Tensor, *, clip: float) -> tuple[Tensor, float]:
        """
        The gradient [P] of a scalar loss, on the CPU, and its Euclidean norm before clipping.

        It is scaled down to norm `clip` when it is longer (0: never). In the place of statistics it holds what is to be
        added to them. Nobody writes to it any more.
        """
        gradient = self._zeros()
        # Backward adds into a gradient that is there: the views stay views.
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
        """[P], on the network's device; on the CPU in memory that comes back when nobody holds the gradient."""
        if self._weights.device.type != "cpu":
            return torch.zeros_like(self._weights)
        return torch.from_numpy(self._pool.take()).zero_()


def schema_of(network: nn.Module) -> Schema:
    """Parameters are weights, buffers are statistics, in the order in which the network names them."""
    weights = [TensorSpec(name, tuple(tensor.shape)) for name, tensor in network.named_parameters()]
    statistics = [TensorSpec(name, tuple(tensor.shape), role="statistic") for name, tensor in network.named_buffers()]
    return Schema(weights + statistics)


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """A new flat float32 vector [P] with the values of the named tensors, in their order, on the CPU."""
    return torch.cat([tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()])
