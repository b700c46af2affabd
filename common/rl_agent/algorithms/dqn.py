"""
Deep Q-learning from a replay memory (Mnih et al. 2015, algorithm 1), with extensions that Hessel et al. 2018 combine.

    y = r + γ Q(s', a*; θ⁻)      a* = argmax_a Q(s', a; θ) with double Q-learning, otherwise argmax_a Q(s', a; θ⁻)

r is the n-step return, and γ its discount: see replay_memory.py. The loss is Huber's, whose gradient is the error
clipped to ±1. With quantiles (Dabney et al. 2018, equations 9 and 10) Q is the mean of K quantiles of the return.
"""

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from ps_common.settings.run_spec import DqnSettings, Replay, RunSpec
from rl_agent.algorithms.action_values import EpsilonGreedy, another, built_network
from rl_agent.algorithms.algorithm import Loss
from rl_agent.algorithms.replayed import ReplayedUpdates
from rl_agent.environments.spaces import Spaces
from rl_agent.networks.flat_network import move_towards
from rl_agent.networks.networks import ActionValueNetwork
from rl_agent.replay.replay_memory import Drawn
from rl_agent.rollouts import Trajectory


class Dqn(EpsilonGreedy):
    """ε-greedy play, and remembered steps to learn from."""

    network: ActionValueNetwork
    learns_while_acting = True

    def __init__(
        self,
        network: ActionValueNetwork,
        settings: DqnSettings,
        replay: Replay,
        *,
        frames: int = 1,
        device: torch.device,
        seed: int,
    ) -> None:
        super().__init__(network, settings, device=device, seed=seed)
        self.replay = ReplayedUpdates(replay, frames=frames, seed=seed)
        self._dqn = settings

    @classmethod
    def build(cls, settings: DqnSettings, run: RunSpec, spaces: Spaces, *, device: torch.device, seed: int) -> Self:
        """The algorithm with a new network, for spaces that check_algorithm accepts."""
        network = built_network(cls, settings, run, spaces, device)
        frames = spaces.observations.frames
        learner = cls(network, settings, run.replay, frames=frames, device=device, seed=seed)
        # An unroll is collected in another thread than that which learns.
        learner.acting_network = another(network).requires_grad_(False).eval()
        return learner

    def adjust(self, settings: Any) -> None:
        super().adjust(settings)
        self._dqn = settings

    def begin_unroll(self, global_steps: int) -> None:
        super().begin_unroll(global_steps)
        self.replay.global_steps = global_steps
        if self.acting_network is not self.network:
            move_towards(self.acting_network, self.network)

    def batches(self, trajectory: Trajectory) -> Iterator[Drawn]:
        """Remember an unroll; then the batches that are due."""
        return self.replay.batches(trajectory, self._dqn, self.network.returns)

    def loss(self, drawn: Drawn) -> Loss:
        """Huber's loss of the errors of a batch, or that of the quantiles."""
        targets = self._targets(drawn)  # [N, K]
        quantiles = self._of_actions(self.network.quantiles(drawn.observations.to(self._device)), drawn.actions)
        if self._dqn.quantiles:
            each = quantile_huber(quantiles, targets)
        else:
            each = functional.huber_loss(quantiles, targets, reduction="none").squeeze(-1)
        total = (drawn.weights.to(self._device) * each).mean()
        values = quantiles.detach().mean(-1)
        self.replay.learned(drawn, (targets.mean(-1) - values).abs())
        meters = {"value_loss": each.detach().mean(), "value": values.mean()}
        if self._epsilons is not None:
            meters["epsilon"] = self.epsilons().mean()
        return Loss(total, meters | self.replay.meters(drawn))

    @torch.no_grad()
    def _targets(self, drawn: Drawn) -> Tensor:
        """y [N, K]"""
        target = self.network if self.target_network is None else self.target_network
        assert isinstance(target, ActionValueNetwork), "it is built as the network is"
        after = drawn.next_observations.to(self._device)
        quantiles = target.quantiles(after)
        chooser = self.network(after) if self._dqn.double else target(after)
        best = self._of_actions(quantiles, chooser.argmax(-1))
        rewards, discounts = drawn.rewards.to(self._device), drawn.discounts.to(self._device)
        return rewards.unsqueeze(-1) + discounts.unsqueeze(-1) * best

    def _of_actions(self, quantiles: Tensor, actions: Tensor) -> Tensor:
        """[N, A, K] and [N] → [N, K]"""
        rows = actions.to(self._device).view(-1, 1, 1).expand(-1, 1, quantiles.shape[-1])
        return quantiles.gather(1, rows).squeeze(1)


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Quantiles [N, K] and samples of the target [N, J] → the loss [N]: Dabney et al. 2018, equation 10, κ = 1."""
    K = quantiles.shape[-1]
    middles = (torch.arange(K, dtype=quantiles.dtype, device=quantiles.device) + 0.5) / K
    errors = targets.unsqueeze(1) - quantiles.unsqueeze(2)  # [N, K, J]
    huber = functional.huber_loss(quantiles.unsqueeze(2).expand_as(errors), targets.unsqueeze(1).expand_as(errors),
                                  reduction="none")  # fmt: skip
    weights = (middles.view(1, -1, 1) - (errors.detach() < 0).to(errors.dtype)).abs()
    return (weights * huber).mean(2).sum(1)
