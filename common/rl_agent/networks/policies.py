"""
The distribution over actions that a policy network parameterizes, for each kind of action space: three classes with the
same methods, which Categorical explains.

`parameters` are the network's outputs [..., P], or [..., P + M] with an action mask [M] behind them; actions are int64
[...] (one choice), int64 [..., K] (several) or float32 [..., A] (real numbers).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from rl_agent.environments.spaces import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions

FORBIDDEN = -1e9  # logit of an action that a mask does not allow; finite, so that no NaN arises
SMALLEST_VARIANCE = 1e-4  # keeps the density of a nearly deterministic policy finite


class Chances(NamedTuple):
    """How a policy chooses, as one of these."""

    probabilities: Tensor | None = None  # [..., A]
    choices: tuple[Tensor, ...] = ()  # [..., counts[k]] of each choice
    gaussian: tuple[Tensor, Tensor] | None = None  # mean and standard deviation [..., A], 0 for masked elements


class Categorical:
    """A choice of one of A actions; the parameters are logits. Actions that a mask forbids have probability 0."""

    def __init__(self, actions: int, *, masked: bool = False) -> None:
        self.parameters = actions  # P: the network's outputs for one observation
        self._masked = masked

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """An action for each observation."""
        probabilities = self.probabilities(parameters)
        flat = torch.multinomial(probabilities.flatten(0, -2), 1, generator=generator)
        return flat.view(probabilities.shape[:-1])

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action for each observation."""
        return _logits(parameters, masked=self._masked).argmax(-1)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """π(·|s) [..., A]"""
        return _logits(parameters, masked=self._masked).softmax(-1)

    def chances(self, parameters: Tensor) -> Chances:
        """How it chooses."""
        return Chances(probabilities=self.probabilities(parameters))

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s) [...]; a log density for continuous actions."""
        logs = _logits(parameters, masked=self._masked).log_softmax(-1)
        return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """H(π(·|s)) [...], in nats."""
        logs = _logits(parameters, masked=self._masked).log_softmax(-1)
        return -(logs.exp() * logs).sum(-1)


class Categoricals:
    """K independent choices, the k-th of `counts[k]` options; actions are int64 [..., K]."""

    def __init__(self, counts: Sequence[int], *, masked: bool = False) -> None:
        self.parameters = sum(counts)
        self._counts = list(counts)
        self._masked = masked
        self._choices = [Categorical(count) for count in counts]

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.stack([choice.sample(part, generator) for choice, part in self._split(parameters)], dim=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return torch.stack([choice.mode(part) for choice, part in self._split(parameters)], dim=-1)

    def chances(self, parameters: Tensor) -> Chances:
        return Chances(choices=tuple(choice.probabilities(part) for choice, part in self._split(parameters)))

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        choices = zip(self._split(parameters), actions.unbind(-1), strict=True)
        return torch.stack([choice.log_probability(part, taken) for (choice, part), taken in choices]).sum(0)

    def entropy(self, parameters: Tensor) -> Tensor:
        return torch.stack([choice.entropy(part) for choice, part in self._split(parameters)]).sum(0)

    def _split(self, parameters: Tensor) -> Iterator[tuple[Categorical, Tensor]]:
        """Each choice with its logits."""
        logits: Sequence[Tensor] = torch.split(_logits(parameters, masked=self._masked), self._counts, dim=-1)
        return zip(self._choices, logits, strict=True)


def _logits(parameters: Tensor, *, masked: bool) -> Tensor:
    """The logits; FORBIDDEN where the mask behind them says so."""
    if not masked:
        return parameters
    logits, mask = parameters.chunk(2, dim=-1)
    return logits.masked_fill(mask == 0, FORBIDDEN)


class Gaussian:
    """
    Real vectors [A]; the parameters are means [A] and variances [A], these before a softplus (Mnih et al. 2016, section
    9 of the supplement, has one variance for all elements). Masked elements are 0 and have no part in probabilities and
    entropy.
    """

    def __init__(self, actions: BoxActions, *, masked: bool = False) -> None:
        self._size = len(actions.low)
        self._masked = masked
        self.parameters = 2 * self._size

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        mean, variance, mask = self._split(parameters)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return (mean + variance.sqrt() * noise) * mask

    def mode(self, parameters: Tensor) -> Tensor:
        mean, _, mask = self._split(parameters)
        return mean * mask

    def chances(self, parameters: Tensor) -> Chances:
        mean, variance, mask = self._split(parameters)
        return Chances(gaussian=(mean * mask, variance.sqrt() * mask))

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, variance, mask = self._split(parameters)
        squares = (actions - mean).square() / variance
        return -0.5 * ((squares + variance.log() + math.log(2 * math.pi)) * mask).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """½ Σ (log 2πσ² + 1)"""
        _, variance, mask = self._split(parameters)
        return 0.5 * ((variance.log() + math.log(2 * math.pi) + 1) * mask).sum(-1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean [..., A], variance [..., A], and the mask [..., A], or 1 without one."""
        mean, variance = parameters[..., : self._size], parameters[..., self._size : 2 * self._size]
        mask = parameters[..., 2 * self._size :] if self._masked else parameters.new_ones(1)
        return mean, functional.softplus(variance) + SMALLEST_VARIANCE, mask


ActionDistribution = Categorical | Categoricals | Gaussian


def policy_for(actions: ActionSpace, *, masked: bool = False) -> ActionDistribution:
    """The policy for an action space; `masked`: the network's outputs end with a mask."""
    match actions:
        case BoxActions():
            return Gaussian(actions, masked=masked)
        case MultiDiscreteActions():
            return Categoricals(actions.counts, masked=masked)
        case DiscreteActions():
            return Categorical(actions.count, masked=masked)
