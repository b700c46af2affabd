"""
Asynchronous one-step Q-learning: Mnih et al. 2016, algorithm 1.

    y = r                              for terminal s'
    y = r + γ max_a' Q(s', a'; θ⁻)     otherwise

One push accumulates gradients of ½ (y − Q(s, a; θ))² over `unroll_length` (I_AsyncUpdate) steps of each environment.
"""

from torch import Tensor

from rl_agent.algorithms.action_values import ActionValueLearner
from rl_agent.rollouts import Trajectory


class OneStepQ(ActionValueLearner):
    """Learns the value of the greedy policy, whichever actions are taken."""

    def targets(self, trajectory: Trajectory) -> Tensor:
        best = self.values_after(trajectory).amax(-1)
        return self.rewards(trajectory) + trajectory.discounts * best
