"""
The three action-value methods of Mnih et al. 2016 as a reader would write them down: float64, one transition at a time.

Q is linear in the observation x: Q(x) = W x + b, so ∂ ½ (y − Q(x)[a])² / ∂W = −(y − Q(x)[a]) onehot(a) xᵀ.
"""

import numpy as np
import torch
from torch import nn

from ps_common.settings.run_spec import NetworkSettings
from rl_agent.networks.networks import ActionValueNetwork
from tests.rl_agent.experience import ACTIONS, DISCOUNT, FEATURES, Array, Experience
from tests.rl_agent.observation_spaces import numbers


class LinearActionValues:
    """The network in numbers, and what a transition adds to its gradient."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.weight, self.bias = chance.normal(size=(ACTIONS, FEATURES)), chance.normal(size=ACTIONS)

    def q(self, x: Array) -> Array:
        values: Array = self.weight @ x + self.bias
        return values

    def gradient_of_transition(self, x: Array, action: int, y: float) -> Array:
        """[P], of ½ (y − Q(x)[a])²"""
        by_values = -(y - self.q(x)[action]) * np.eye(ACTIONS)[action]
        return np.concatenate([np.outer(by_values, x).ravel(), by_values])

    def as_network(self) -> ActionValueNetwork:
        """The same function in torch."""
        network = ActionValueNetwork(NetworkSettings(hidden=(FEATURES,)), numbers(FEATURES), actions=ACTIONS).double()
        network.torso = nn.Sequential()
        assert isinstance(network.values, nn.Linear)
        network.values.weight.data = torch.from_numpy(self.weight.copy())
        network.values.bias.data = torch.from_numpy(self.bias.copy())
        return network


def one_step_q(model: LinearActionValues, target: LinearActionValues, seen: Experience) -> Array:
    """Algorithm 1."""
    total = np.zeros(ACTIONS * FEATURES + ACTIONS)
    for t in range(len(seen.rewards)):
        y = float(seen.rewards[t])
        if seen.ends[t] != "terminated":
            y += DISCOUNT * float(target.q(seen_after(seen, t)).max())
        total += model.gradient_of_transition(seen.observations[t], int(seen.actions[t]), y)
    return total


def one_step_sarsa(model: LinearActionValues, target: LinearActionValues, seen: Experience) -> Array:
    """Section 4; a' after a truncation is what the policy would have done: here, the best by θ (ε = 0)."""
    total = np.zeros(ACTIONS * FEATURES + ACTIONS)
    for t in range(len(seen.rewards)):
        y = float(seen.rewards[t])
        after = seen_after(seen, t)
        next_action = model.q(after).argmax() if seen.ends[t] == "truncated" else seen.actions[t + 1]
        if seen.ends[t] != "terminated":
            y += DISCOUNT * float(target.q(after)[next_action])
        total += model.gradient_of_transition(seen.observations[t], int(seen.actions[t]), y)
    return total


def n_step_q(model: LinearActionValues, target: LinearActionValues, seen: Experience, *, trace: float = 1.0) -> Array:
    """
    Algorithm S2: backwards through the steps, R ← r + γ R.

    With a trace λ below 1, R ← r + γ ((1 − λ) max Q(s') + λ R)    Gallici et al. 2024, equation of section 4
    """
    total = np.zeros(ACTIONS * FEATURES + ACTIONS)
    steps = len(seen.rewards)
    R = float(target.q(seen_after(seen, steps - 1)).max())
    for i in reversed(range(steps)):
        best = float(target.q(seen_after(seen, i)).max())
        if seen.ends[i] == "terminated":
            R = 0.0
        elif seen.ends[i] == "truncated":
            R = best
        else:
            R = (1 - trace) * best + trace * R
        R = float(seen.rewards[i]) + DISCOUNT * R
        total += model.gradient_of_transition(seen.observations[i], int(seen.actions[i]), R)
    return total


def seen_after(seen: Experience, t: int) -> Array:
    """s' of step t: of its own episode."""
    after: Array = seen.last_observations[t] if seen.ends[t] == "truncated" else seen.observations[t + 1]
    return after
