"""
The distribution over actions that a policy network parameterizes, for each kind of action space.

`parameters` are the network's outputs [..., P]; actions are int64 [...] (discrete) or float32 [..., A] (continuous).
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from rl_worker.environments.interface import ActionSpace, BoxActions

SMALLEST_VARIANCE = 1e-4  # keeps the density of a nearly deterministic policy finite


class Policy(Protocol):
    """A family of distributions over actions."""

    parameters: int  # P: the network's outputs for one observation

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """An action for each observation."""
        ...

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action for each observation."""
        ...

    def probabilities(self, parameters: Tensor) -> Tensor | None:
        """π(·|s) [..., A]; None for continuous actions, which have densities."""
        ...

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s) [...]; a log density for continuous actions."""
        ...

    def entropy(self, parameters: Tensor) -> Tensor:
        """H(π(·|s)) [...], in nats."""
        ...


class Categorical:
    """A choice of one of A actions; the parameters are logits."""

    def __init__(self, actions: int) -> None:
        self.parameters = actions

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        probabilities = parameters.softmax(-1)
        flat = torch.multinomial(probabilities.flatten(0, -2), 1, generator=generator)
        return flat.view(probabilities.shape[:-1])

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def probabilities(self, parameters: Tensor) -> Tensor:
        return parameters.softmax(-1)

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return parameters.log_softmax(-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        logs = parameters.log_softmax(-1)
        return -(logs.exp() * logs).sum(-1)


class Gaussian:
    """
    Real vectors [A]; the parameters are a mean [A] and one variance for all elements, before a softplus (Mnih et al.
    2016, section 9 of the supplement).
    """

    def __init__(self, actions: BoxActions) -> None:
        self._size = len(actions.low)
        self.parameters = self._size + 1

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        mean, variance = self._split(parameters)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return mean + variance.sqrt() * noise

    def mode(self, parameters: Tensor) -> Tensor:
        return self._split(parameters)[0]

    def probabilities(self, parameters: Tensor) -> None:
        return None

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, variance = self._split(parameters)
        squares = (actions - mean).square() / variance
        return -0.5 * (squares + variance.log() + math.log(2 * math.pi)).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """½ A (log 2πσ² + 1)"""
        _, variance = self._split(parameters)
        return 0.5 * self._size * (variance.squeeze(-1).log() + math.log(2 * math.pi) + 1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [..., A] and variance [..., 1]."""
        return parameters[..., :-1], functional.softplus(parameters[..., -1:]) + SMALLEST_VARIANCE


def policy_for(actions: ActionSpace) -> Policy:
    """The policy for an action space."""
    return Gaussian(actions) if isinstance(actions, BoxActions) else Categorical(actions.count)
