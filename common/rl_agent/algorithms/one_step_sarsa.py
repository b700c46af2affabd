"""
Asynchronous one-step Sarsa: Mnih et al. 2016, section 4.

    y = r                        for terminal s'
    y = r + γ Q(s', a'; θ⁻)      otherwise, with the action a' that is really taken in s'

The action after the last step of an unroll is chosen in that unroll and taken in the next, even if the weights have
changed meanwhile. After a truncated episode no action is taken: there a' is drawn from the behaviour policy.
"""

from torch import Tensor

from rl_agent.algorithms.action_values import ActionValueLearner, epsilon_greedy
from rl_agent.rollouts import Trajectory


class OneStepSarsa(ActionValueLearner):
    """Learns the value of its own ε-greedy behaviour."""

    commits_next_action = True

    def targets(self, trajectory: Trajectory) -> Tensor:
        next_actions = trajectory.actions[1:].clone()
        for cut_off in trajectory.cut_offs:
            values = self.network(cut_off.observations.to(self._device)).cpu()
            next_actions[cut_off.t, cut_off.rows] = epsilon_greedy(values, self.epsilons()[cut_off.rows], self._random)
        taken = self.values_after(trajectory).gather(-1, next_actions.unsqueeze(-1)).squeeze(-1)
        return self.rewards(trajectory) + trajectory.discounts * taken
