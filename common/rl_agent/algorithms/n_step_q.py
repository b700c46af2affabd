"""
Asynchronous n-step Q-learning: Mnih et al. 2016, algorithm S2, in the forward view.

    R = 0 after a terminal step, else max_a Q(s, a; θ⁻) of the last observation
    R ← r + γ R, from the last step of the unroll to the first: each step's target

With `q_lambda` < 1 the targets are λ-returns, as in PQN (Gallici et al. 2024). PQN also reuses each unroll for several
epochs of minibatches, uses layer norm, and has no target network.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ps_common.settings import run_spec
from rl_agent.algorithms.action_values import ActionValueLearner, ValueBatch
from rl_agent.algorithms.returns import Steps, lambda_returns
from rl_agent.networks.networks import ActionValueNetwork
from rl_agent.rollouts import Trajectory


class NStepQ(ActionValueLearner):
    """Learns from the rewards of up to n steps and the best action value after them."""

    def __init__(
        self, network: ActionValueNetwork, settings: run_spec.NStepQSettings, *, device: torch.device, seed: int
    ) -> None:
        super().__init__(network, settings, device=device, seed=seed)
        self._lambda = settings.q_lambda
        self._epochs = settings.epochs
        self._minibatches = settings.minibatches

    def batches(self, trajectory: Trajectory) -> Iterator[ValueBatch]:
        """The whole unroll, or shuffled minibatches of it, for each epoch."""
        whole = self.whole(trajectory)
        for _ in range(self._epochs):
            if self._minibatches == 1:
                yield whole
                continue
            order = torch.randperm(len(whole.targets), generator=self._random).to(self._device)
            for rows in order.tensor_split(min(self._minibatches, len(order))):
                yield ValueBatch(whole.observations[rows], whole.actions[rows], whole.targets[rows])

    def targets(self, trajectory: Trajectory) -> Tensor:
        best = self.values_after(trajectory, at_ends=self._lambda == 1).amax(-1)
        steps = Steps(self.rewards(trajectory), trajectory.discounts, trajectory.continues)
        return lambda_returns(steps, best, self._lambda)
