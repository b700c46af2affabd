"""
Asynchronous one-step Sarsa: Mnih et al. 2016, section 4.

    y = r                        for terminal s'
    y = r + γ Q(s', a'; θ⁻)      otherwise, with the action a' that is really taken in s'

The action after the last step of an unroll is decided in it and taken in the next, whatever the weights are by then.
Where an episode was cut off nothing is taken: there a' is what the behaviour policy would have done.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_worker.algorithms.action_values import ActionValueLearner, Batch
from rl_worker.algorithms.exploration import epsilon_greedy
from rl_worker.rollouts import Trajectory


class OneStepSarsa(ActionValueLearner):
    """Learns the value of what it does."""

    commits_next_action = True

    def batches(self, trajectory: Trajectory) -> Iterator[Batch]:
        """The whole unroll."""
        yield self.whole(trajectory, self._targets(trajectory))

    @torch.no_grad()
    def _targets(self, trajectory: Trajectory) -> Tensor:
        next_actions = trajectory.actions[1:].clone()
        for cut_off in trajectory.cut_offs:
            own = self.network(cut_off.observations.to(self._device)).cpu()
            next_actions[cut_off.t, cut_off.rows] = epsilon_greedy(own, self.epsilons()[cut_off.rows], self._random)
        taken = self.values_after(trajectory).gather(-1, next_actions.unsqueeze(-1)).squeeze(-1)
        return self.rewards(trajectory) + trajectory.discounts * taken
