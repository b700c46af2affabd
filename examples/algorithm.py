"""
An algorithm of your own: A3C that is paid for seeing what is new (a bonus by counts, Bellemare et al. 2016).

    rl-cluster --environment examples.environment:make_corridor --algorithm examples.algorithm:CuriousA3C --bonus 0.3

Its setting `bonus` is a flag, and a key of [algorithm] in a file for --config.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import msgspec
import torch

from common.settings.run_spec import A3CSettings
from rl_worker.algorithms.a3c import A3C, Batch
from rl_worker.networks.networks import PolicyValueNetwork
from rl_worker.networks.policies import Policy
from rl_worker.rollouts import Trajectory


class CuriousSettings(A3CSettings, frozen=True, kw_only=True):
    """Those of A3C, and one more. Each has a default; the text below a setting is its help."""

    bonus: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.1
    """reward for an observation that was seen n times before: bonus / sqrt(n + 1)"""


class CuriousA3C(A3C):
    """A3C, with a bonus on the rewards that it learns from. Reported scores are without it."""

    settings = CuriousSettings

    def __init__(
        self, network: PolicyValueNetwork, policy: Policy, settings: CuriousSettings, *, device: torch.device, seed: int
    ) -> None:
        super().__init__(network, policy, settings, device=device, seed=seed)
        self.bonus = settings.bonus
        self.counts: Counter[bytes] = Counter()  # of this worker alone

    def batches(self, trajectory: Trajectory) -> Iterator[Batch]:
        """The batches of A3C, from an unroll with the bonus."""
        return super().batches(replace(trajectory, rewards=trajectory.rewards + self._bonuses(trajectory)))

    def _bonuses(self, trajectory: Trajectory) -> torch.Tensor:
        """[T, B], for the observation after each step."""
        bonuses = torch.empty_like(trajectory.rewards)
        for t, seen in enumerate(trajectory.observations[1:].numpy().round(1)):
            for row, observation in enumerate(seen):
                key = observation.tobytes()
                self.counts[key] += 1
                bonuses[t, row] = self.bonus / self.counts[key] ** 0.5
        return bonuses
