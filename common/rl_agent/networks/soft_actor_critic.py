"""
The network of soft actor-critic: a policy, several critics, and the logarithm of the temperature.

All of its parameters are one vector at the server. The critics are one batch of matrices, which costs little more than
one critic. Encoders of images, and of observations with several parts, belong to the policy and to the critics each.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from ps_common.protocol.names import is_import_path
from ps_common.settings.run_spec import NetworkSettings, SacSettings
from rl_agent.environments.spaces import BoxActions, ObservationSpace, Spaces
from rl_agent.networks.compatibility import check_network
from rl_agent.networks.custom_network import part_of
from rl_agent.networks.running_statistics import ReturnNormalization, return_normalization
from rl_agent.networks.torsos import ACTIVATIONS, encoder_for, torso_for

HIDDEN = (256, 256)  # Haarnoja et al. 2018b, table 1
LOWEST_LOG, HIGHEST_LOG = -20.0, 2.0  # of a standard deviation, as is usual


class ManyPerceptrons(nn.Module):
    """N multi-layer perceptrons with one output each, as one batch of matrices."""

    def __init__(self, count: int, inputs: int, hidden: Sequence[int], activation: nn.Module, *, layer_norm: bool,
                 dropout: float) -> None:  # fmt: skip
        super().__init__()
        widths = [inputs, *hidden, 1]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        self.gains = nn.ParameterList()  # of layer norm
        self.shifts = nn.ParameterList()
        for below, above in pairwise(widths):
            bound = 1 / math.sqrt(below)
            self.weights.append(nn.Parameter(torch.empty(count, below, above).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(count, 1, above).uniform_(-bound, bound)))
            if layer_norm and above != 1:
                self.gains.append(nn.Parameter(torch.ones(count, 1, above)))
                self.shifts.append(nn.Parameter(torch.zeros(count, 1, above)))
        self._activation = activation
        self._dropout = dropout

    def forward(self, inputs: Tensor, *, fixed: bool = False) -> Tensor:
        """[B, F] → [N, B]. `fixed`: the parameters are constants."""
        weights, biases, gains, shifts = (
            [parameter.detach() if fixed else parameter for parameter in parameters]
            for parameters in (self.weights, self.biases, self.gains, self.shifts)
        )
        last = len(weights) - 1
        outputs = inputs.expand(len(weights[0]), *inputs.shape)
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            outputs = torch.baddbmm(bias, outputs, weight)
            if layer == last:
                break
            if self._dropout:
                outputs = functional.dropout(outputs, self._dropout, self.training)
            if gains:
                outputs = functional.layer_norm(outputs, outputs.shape[-1:]) * gains[layer] + shifts[layer]
            outputs = self._activation(outputs)
        return outputs.squeeze(-1)


class SquashedPolicy(nn.Module):
    """π(·|s): a Gaussian whose samples pass through a tanh."""

    def __init__(self, settings: NetworkSettings, observations: ObservationSpace, size: int) -> None:
        """`size`: the number of an action's elements."""
        super().__init__()
        self.mask = observations.mask
        self.torso, features = _encoder(settings, observations)
        layers: list[nn.Module] = []
        for width in settings.hidden or HIDDEN:
            norm = [nn.LayerNorm(width)] if settings.layer_norm else []
            layers += [nn.Linear(features, width), *norm, _activation(settings)]
            features = width
        self.head = nn.Sequential(*layers, nn.Linear(features, 2 * size))

    def distribution(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """[B, ...] → mean and logarithm of the standard deviation [B, A], both before the tanh, and the action mask."""
        mean, log_deviation = self.head(self.torso(observations)).chunk(2, dim=-1)
        mask = None if self.mask is None else part_of(observations, self.mask).to(mean.dtype)
        return mean, log_deviation.clamp(LOWEST_LOG, HIGHEST_LOG), mask

    def forward(self, observations: Tensor) -> Tensor:
        """The mean action [B, A] in [−1, 1]."""
        mean, _, mask = self.distribution(observations)
        action: Tensor = mean.tanh() if mask is None else mean.tanh() * mask
        return action


class Critics(nn.Module):
    """Q_i(s, a) for actions in [−1, 1]."""

    def __init__(
        self, settings: NetworkSettings, algorithm: SacSettings, observations: ObservationSpace, size: int
    ) -> None:
        """`size`: the number of an action's elements."""
        super().__init__()
        self.torso, features = _encoder(settings, observations)
        self.perceptrons = ManyPerceptrons(
            algorithm.critics, features + size, settings.hidden or HIDDEN, _activation(settings),
            layer_norm=settings.layer_norm, dropout=algorithm.critic_dropout,
        )  # fmt: skip

    def forward(self, observations: Tensor, actions: Tensor, *, fixed: bool = False) -> Tensor:
        """[B, ...] and [B, A] → Q [N, B]. `fixed`: the parameters are constants, and gradients reach the actions."""
        features = self.torso(observations)
        inputs = torch.cat([features.detach() if fixed else features, actions], dim=-1)
        values: Tensor = self.perceptrons(inputs, fixed=fixed)
        return values


class SoftActorCriticNetwork(nn.Module):
    """All that the server moves: policy, temperature and critics."""

    def __init__(
        self, settings: NetworkSettings, algorithm: SacSettings, observations: ObservationSpace, actions: BoxActions
    ) -> None:
        super().__init__()
        check_network(settings, observations)
        self.returns: ReturnNormalization | None = None  # of the rewards that it learns from
        size = len(actions.low)
        self.policy = SquashedPolicy(settings, observations, size)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(algorithm.temperature)))
        self.critics = Critics(settings, algorithm, observations, size)

    def forward(self, observations: Tensor) -> Tensor:
        """The mean action [B, A] in [−1, 1]."""
        action: Tensor = self.policy(observations)
        return action


def soft_actor_critic_network(
    settings: SacSettings, network: NetworkSettings, spaces: Spaces
) -> SoftActorCriticNetwork:
    """A new network of SAC. Raises SettingsError when it does not fit the spaces."""
    assert isinstance(spaces.actions, BoxActions), "check_algorithm refuses others"
    made = SoftActorCriticNetwork(network, settings, spaces.observations, spaces.actions)
    made.returns = return_normalization(settings)
    return made


def _encoder(settings: NetworkSettings, observations: ObservationSpace) -> tuple[nn.Module, int]:
    if is_import_path(settings.name):
        return torso_for(settings, observations, ())
    layers, size, _ = encoder_for(settings, observations)
    return nn.Sequential(*layers), size


def _activation(settings: NetworkSettings) -> nn.Module:
    return ACTIVATIONS["relu" if settings.activation == "auto" else settings.activation]()
