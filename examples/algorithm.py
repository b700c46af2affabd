"""
A custom algorithm: A3C that keeps the entropy of its policy near a target (as Haarnoja et al. 2018 do in SAC).

    rl-cluster --environment CartPole-v1 --algorithm examples.algorithm:EntropyA3C --target-entropy 0.3

Its settings `target_entropy` and `entropy_step` are flags, and keys of [algorithm] in a file for --config.
"""

import math
from typing import Annotated

import msgspec
from torch import device

from ps_rl import A3C, A3CSettings, ActionDistribution, Loss, PolicyBatch, PolicyValueNetwork


class EntropySettings(A3CSettings, frozen=True, kw_only=True):
    """Those of A3C, and two more. Each has a default; the text below a setting is its help."""

    target_entropy: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.3
    """entropy of the policy, in nats, that the entropy weight is moved towards"""
    entropy_step: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """how fast the entropy weight moves: a share of the difference, at each gradient"""


class EntropyA3C(A3C):
    """A3C whose entropy weight grows while the policy is too certain, and falls while it is not certain enough."""

    settings = EntropySettings

    def __init__(
        self,
        network: PolicyValueNetwork,
        policy: ActionDistribution,
        settings: EntropySettings,
        *,
        device: device,
        seed: int,
    ) -> None:
        super().__init__(network, policy, settings, device=device, seed=seed)
        self.weight = settings.entropy_weight  # of the entropy bonus; each worker finds its own
        self.target, self.step = settings.target_entropy, settings.entropy_step

    def adjust(self, settings: EntropySettings) -> None:
        """`ps-ctl set algorithm.target_entropy=0.2` was typed."""
        super().adjust(settings)
        self.target, self.step = settings.target_entropy, settings.entropy_step

    def begin_unroll(self, global_steps: int) -> None:
        """The found weight takes the place of A3C's schedule."""
        self.entropy_weight = self.weight

    def loss(self, batch: PolicyBatch) -> Loss:
        """The loss of A3C; afterwards the weight is moved. It becomes the meter `entropy_weight`."""
        loss = super().loss(batch)
        self.weight *= math.exp(self.step * (self.target - float(loss.meters["entropy"])))
        self.entropy_weight = self.weight
        return loss
