"""Torsos that compute something else in training mode."""

import torch
from torch import Tensor, nn

from ps_common.settings.run_spec import NetworkSettings
from rl_agent.environments.spaces import ObservationSpace


class Dropping(nn.Module):
    """Half of its features are dropped."""

    features = 16

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(observations.shape[0], 16), nn.Tanh(), nn.Dropout(0.5))

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layers(observations)
        return features


class Attending(nn.Module):
    """Each number of an observation is a token; the layer has a dropout of 0.1 by default."""

    features = 8

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings) -> None:
        super().__init__()
        self.first = nn.Linear(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layer(self.first(observations.unsqueeze(-1))).mean(1)
        return features


class Noisy(nn.Module):
    """It has no module of torch's that knows the mode."""

    features = 4

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings) -> None:
        super().__init__()
        self.layer = nn.Linear(observations.shape[0], 4)

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layer(observations)
        return features + torch.randn_like(features) if self.training else features
