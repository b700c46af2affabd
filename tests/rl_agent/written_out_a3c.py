"""
Mnih et al. 2016, algorithm S3, as a reader would write it down: float64, one transition at a time, gradients by hand.

The network is linear in the observation x: logits z = W x + b, value v = w·x + c. With π = softmax(z):

    ∂ log π(a) / ∂z = onehot(a) − π        ∂ H(π) / ∂z = −π (log π + H)        ∂ ½ (R − v)² / ∂v = −(R − v)
"""

import numpy as np
import torch
from torch import nn

from ps_common.settings.run_spec import NetworkSettings
from rl_agent.networks.networks import PolicyValueNetwork
from tests.rl_agent.experience import ACTIONS, DISCOUNT, FEATURES, Array, Experience
from tests.rl_agent.observation_spaces import numbers


class LinearActorCritic:
    """The network in numbers, and what a transition adds to its gradient."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.policy_weight, self.policy_bias = chance.normal(size=(ACTIONS, FEATURES)), chance.normal(size=ACTIONS)
        self.value_weight, self.value_bias = chance.normal(size=FEATURES), float(chance.normal())

    def policy(self, x: Array) -> Array:
        logits = self.policy_weight @ x + self.policy_bias
        powers = np.exp(logits - logits.max())
        policy: Array = powers / powers.sum()
        return policy

    def value(self, x: Array) -> float:
        return float(self.value_weight @ x + self.value_bias)

    def gradient_of_transition(
        self, x: Array, action: int, wanted: float, *, value_weight: float, entropy_weight: float
    ) -> Array:
        """[P], of −log π(a) (R − v) − β H + c ½ (R − v)², where the first v is a constant."""
        policy = self.policy(x)
        entropy = -float(policy @ np.log(policy))
        advantage = wanted - self.value(x)
        by_logits = -advantage * (np.eye(ACTIONS)[action] - policy)
        by_logits -= entropy_weight * -policy * (np.log(policy) + entropy)
        by_value = value_weight * -(wanted - self.value(x))
        return np.concatenate([np.outer(by_logits, x).ravel(), by_logits, by_value * x, [by_value]])

    def as_network(self) -> PolicyValueNetwork:
        """The same function in torch."""
        network = PolicyValueNetwork(
            NetworkSettings(hidden=(FEATURES,)), numbers(FEATURES), policy_parameters=ACTIONS
        ).double()
        network.branch.torso = nn.Sequential()
        assert isinstance(network.policy, nn.Linear)
        assert isinstance(network.value, nn.Linear)
        for parameter, values in (
            (network.policy.weight, self.policy_weight),
            (network.policy.bias, self.policy_bias),
            (network.value.weight, self.value_weight[None]),
            (network.value.bias, np.array([self.value_bias])),
        ):
            parameter.data = torch.from_numpy(values.copy())
        return network

    def recorded(self, seen: Experience) -> dict[str, list[float]]:
        """The record of each step that the behaviour policy keeps."""
        steps = range(len(seen.rewards))
        return {
            "values": [self.value(seen.observations[t]) for t in steps],
            "log_probabilities": [float(np.log(self.policy(seen.observations[t])[seen.actions[t]])) for t in steps],
        }


def algorithm_s3(
    model: LinearActorCritic,
    seen: Experience,
    *,
    value_weight: float,
    entropy_weight: float,
    reward_clip: float = 0.0,
    trace: float = 1.0,
) -> Array:
    """
    The accumulated gradient of one actor-learner: backwards through its steps, R ← r + γ R.

    With a trace λ below 1, R is the λ-return: R ← r + γ ((1 − λ) v(next) + λ R)    Sutton & Barto, equation 12.18
    """
    steps = len(seen.rewards)
    total = np.zeros(ACTIONS * FEATURES + ACTIONS + FEATURES + 1)
    R = model.value(seen.observations[steps])
    for i in reversed(range(steps)):
        if seen.ends[i] == "terminated":
            R = 0.0
        elif seen.ends[i] == "truncated":
            R = model.value(seen.last_observations[i])
        else:
            R = (1 - trace) * model.value(seen.observations[i + 1]) + trace * R
        reward = float(np.clip(seen.rewards[i], -reward_clip, reward_clip)) if reward_clip else seen.rewards[i]
        R = reward + DISCOUNT * R
        total += model.gradient_of_transition(
            seen.observations[i], int(seen.actions[i]), R, value_weight=value_weight, entropy_weight=entropy_weight
        )
    return total
