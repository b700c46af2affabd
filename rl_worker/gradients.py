"""
A network and the flat vectors behind it: its parameters are views into one vector [P], its gradients into another.

Loading weights is one copy, and the gradient to push lies ready when the backward pass is done.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from common.tensors import Schema, TensorSpec
from rl_worker.normalization import take_added


class FlatNetwork:
    """Ties a network to its flat vectors: first its parameters, which are weights, then its buffers, statistics."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
        tensors = parameters | buffers
        self.schema: Schema = schema_of(network)
        device = next(iter(parameters.values())).device
        self._weights = flatten(tensors).to(device)
        self._gradient = torch.zeros_like(self._weights)
        for name, view in self.schema.views(self._weights).items():
            tensors[name].data = view
        # Backward adds into a gradient that is there: the views stay views.
        self._gradients = self.schema.views(self._gradient)
        for name, parameter in parameters.items():
            parameter.grad = self._gradients[name]

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
        added to them. It is overwritten by the next call.
        """
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        of_weights = self._gradient[: self.schema.weights]
        norm = float(torch.linalg.vector_norm(of_weights))
        if clip and norm > clip:
            of_weights.mul_(clip / norm)
        for name, added in take_added(self._network).items():
            self._gradients[name].copy_(added)
        return self._gradient.cpu(), norm


def schema_of(network: nn.Module) -> Schema:
    """Parameters are weights, buffers are statistics, in the order in which the network names them."""
    weights = [TensorSpec(name, tuple(tensor.shape)) for name, tensor in network.named_parameters()]
    statistics = [TensorSpec(name, tuple(tensor.shape), role="statistic") for name, tensor in network.named_buffers()]
    return Schema(weights + statistics)


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """A new flat float32 vector [P] with the values of the named tensors, in their order, on the CPU."""
    return torch.cat([tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()])
