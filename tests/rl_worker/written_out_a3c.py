"""
Mnih et al. 2016, algorithm S3, as a reader would write it down: float64, one transition at a time, gradients by hand.

The network is linear in the observation x: logits z = W x + b, value v = w·x + c. With π = softmax(z):

    ∂ log π(a) / ∂z = onehot(a) − π        ∂ H(π) / ∂z = −π (log π + H)        ∂ ½ (R − v)² / ∂v = −(R − v)
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rl_worker.networks import PolicyValueNetwork
from rl_worker.rollouts import Trajectory

Array = NDArray[np.float64]
DISCOUNT = 0.9
FEATURES, ACTIONS = 3, 4


@dataclass(frozen=True)
class Experience:
    """What one environment went through, in float64."""

    observations: Array  # [T + 1, F]: the last one is only looked at
    actions: NDArray[np.int64]  # [T]
    rewards: Array  # [T]
    ends: tuple[str, ...]  # of each step: "", "terminated" or "truncated"
    last_observations: Array  # [T, F]: of an episode that was truncated at that step


def experience(seed: int, *ends: str) -> Experience:
    chance = np.random.default_rng(seed)
    steps = len(ends)
    return Experience(
        observations=chance.normal(size=(steps + 1, FEATURES)),
        actions=chance.integers(ACTIONS, size=steps),
        rewards=3 * chance.normal(size=steps),
        ends=ends,
        last_observations=chance.normal(size=(steps, FEATURES)),
    )


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
        network = PolicyValueNetwork(nn.Identity(), FEATURES, ACTIONS).double()
        for parameter, values in (
            (network.policy.weight, self.policy_weight),
            (network.policy.bias, self.policy_bias),
            (network.value.weight, self.value_weight[None]),
            (network.value.bias, np.array([self.value_bias])),
        ):
            assert isinstance(parameter, nn.Parameter)
            parameter.data = torch.from_numpy(values.copy())
        return network


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
    steps = len(seen.actions)
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


def trajectory_of(model: LinearActorCritic, *environments: Experience) -> Trajectory:
    """What the collector would make of it, in float64; [T, B]."""
    steps = len(environments[0].actions)
    values = np.array([[model.value(seen.observations[t]) for seen in environments] for t in range(steps + 1)])
    next_values = values[1:].copy()
    for b, seen in enumerate(environments):
        for t in range(steps):
            if seen.ends[t] == "truncated":
                next_values[t, b] = model.value(seen.last_observations[t])
    ends = np.array([seen.ends for seen in environments]).T
    actions = np.array([seen.actions for seen in environments]).T
    log_probabilities = [
        [np.log(model.policy(seen.observations[t]))[seen.actions[t]] for seen in environments] for t in range(steps)
    ]
    return Trajectory(
        observations=torch.tensor(np.array([seen.observations[:steps] for seen in environments]).swapaxes(0, 1)),
        actions=torch.tensor(actions),
        log_probabilities=torch.tensor(np.array(log_probabilities)),
        values=torch.tensor(values[:steps]),
        next_values=torch.tensor(next_values),
        rewards=torch.tensor(np.array([seen.rewards for seen in environments]).T),
        discounts=torch.tensor(np.where(ends == "terminated", 0.0, DISCOUNT)),
        continues=torch.tensor(np.where(ends == "", 1.0, 0.0)),
    )
