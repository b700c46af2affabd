"""
A custom network: a residual torso for vectors.

    rl-cluster --preset cartpole --network examples.network:ResidualTorso --max-minutes 1
"""

import math

from torch import Tensor, nn

from ps_rl import NetworkSettings, ObservationSpace

DEFAULT_WIDTH = 64


class ResidualTorso(nn.Module):
    """Blocks x + f(x) after a first layer. LSTM and heads are ps-rl's, and follow it."""

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings, blocks: int = 2) -> None:
        super().__init__()
        width = settings.hidden[0] if settings.hidden else DEFAULT_WIDTH  # --hidden 128 makes it wider
        self.features = width  # ps-rl needs to know the width of the output
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(observations.shape), width))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)
        )

    def forward(self, observations: Tensor) -> Tensor:
        """[N, ...] float32 → [N, features]"""
        features: Tensor = self.first(observations)
        for block in self.blocks:
            features = features + block(features)
        return features
