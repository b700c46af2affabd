"""
Deep Q-learning from a replay memory (Mnih et al. 2015, algorithm 1), with extensions that Hessel et al. 2018 combine.

    y = r + γ Q(s', a*; θ⁻)      a* = argmax_a Q(s', a; θ) with double Q-learning, otherwise argmax_a Q(s', a; θ⁻)

r is the n-step return, and γ its discount: see replay_memory.py. The loss is Huber's, whose gradient is the error
clipped to ±1.
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
        """Huber's loss of the errors of a batch."""
        targets = self._targets(drawn)
        values = self._of_actions(self.network(drawn.observations.to(self._device)), drawn.actions)
        each = functional.huber_loss(values, targets, reduction="none")
        meters = {"value_loss": each.detach().mean(), "value": values.detach().mean()}
        if self._epsilons is not None:
            meters["epsilon"] = self.epsilons().mean()
        return Loss(each.mean(), meters | self.replay.meters(drawn))

    @torch.no_grad()
    def _targets(self, drawn: Drawn) -> Tensor:
        """y [N]"""
        target = self.network if self.target_network is None else self.target_network
        after = drawn.next_observations.to(self._device)
        by_target = target(after)
        chooser = self.network(after) if self._dqn.double else by_target
        best = self._of_actions(by_target, chooser.argmax(-1))
        return drawn.rewards.to(self._device) + drawn.discounts.to(self._device) * best

    def _of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        """[N, A] and [N] → [N]"""
        return values.gather(-1, actions.to(self._device).unsqueeze(-1)).squeeze(-1)
