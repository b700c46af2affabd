"""The custom algorithm of the kept runs: A3C whose loss is a multiple of A3C's."""

from typing import Annotated

import msgspec
from torch import device

from ps_rl import A3C, A3CSettings, ActionDistribution, Loss, PolicyBatch, PolicyValueNetwork


class ScaledSettings(A3CSettings, frozen=True, kw_only=True):
    """Those of A3C, and one more."""

    loss_scale: Annotated[float, msgspec.Meta(ge=0, le=100)] = 2.0
    """factor of the loss"""


class ScaledA3C(A3C):
    """A3C with a scaled loss."""

    settings = ScaledSettings

    def __init__(
        self,
        network: PolicyValueNetwork,
        policy: ActionDistribution,
        settings: ScaledSettings,
        *,
        device: device,
        seed: int,
    ) -> None:
        super().__init__(network, policy, settings, device=device, seed=seed)
        self.scale = settings.loss_scale

    def loss(self, batch: PolicyBatch) -> Loss:
        """The loss of A3C, scaled."""
        loss = super().loss(batch)
        return Loss(self.scale * loss.total, loss.meters)
