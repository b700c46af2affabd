"""
Experience: unrolls of B environments over T steps, and the true scores of the games in them.

The collector steps environments with whatever `act` it is given; it knows no algorithm and no server.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.messages import Episode
from rl_worker.environments import Environments, Stepped


@dataclass(frozen=True)
class ActionChoice:
    """What a behaviour policy chose for B observations; each [B]."""

    actions: Tensor  # int64
    log_probabilities: Tensor  # of the chosen actions
    values: Tensor  # of the observations


@dataclass(frozen=True)
class Trajectory:
    """
    One unroll; tensors are [T, B] and lie in buffers that the next unroll overwrites.

    `next_values[t]` is the value of what was seen after step t; where the step truncated its episode, of its last
    observation. `discounts` are 0 only where a step terminated its episode; `continues` also where it truncated it.
    """

    observations: Tensor  # [T, B, ...] uint8 or float32
    actions: Tensor  # int64
    log_probabilities: Tensor  # under the behaviour policy
    values: Tensor
    next_values: Tensor
    rewards: Tensor  # unclipped; true but for the last of a lost game, where a run replaces it
    discounts: Tensor
    continues: Tensor

    @property
    def steps(self) -> int:
        """Environment steps, T · B."""
        return self.actions.numel()


Act = Callable[[Tensor], ActionChoice]


class RolloutCollector:
    """Steps environments, an unroll at a time."""

    def __init__(self, environments: Environments, *, unroll_length: int, discount: float, seed: int) -> None:
        self._environments = environments
        self._discount = discount
        T, B = unroll_length, environments.count
        dtype = torch.uint8 if environments.observation_dtype == np.uint8 else torch.float32
        self._observations = torch.empty(T + 1, B, *environments.observation_shape, dtype=dtype)
        self._actions = torch.empty(T, B, dtype=torch.int64)
        self._log_probabilities = torch.empty(T, B)
        self._values = torch.empty(T + 1, B)
        self._next_values = torch.empty(T, B)
        self._rewards = torch.empty(T, B)
        self._discounts = torch.empty(T, B)
        self._continues = torch.empty(T, B)
        self._observations[T] = torch.from_numpy(environments.reset(seed))
        self._returns = np.zeros(B)  # of the games being played
        self._lengths = np.zeros(B, dtype=np.int64)
        self._episodes: list[Episode] = []

    def collect(self, act: Act) -> Trajectory:
        """The next T steps of each environment."""
        T = len(self._actions)
        self._observations[0] = self._observations[T]
        cut_off: list[tuple[int, Tensor, Tensor]] = []  # (t, rows, values) of truncated episodes' last observations
        for t in range(T):
            choice = act(self._observations[t])
            self._actions[t] = choice.actions
            self._log_probabilities[t] = choice.log_probabilities
            self._values[t] = choice.values
            stepped = self._environments.step(self._actions[t].numpy())
            self._observations[t + 1] = torch.from_numpy(stepped.observations)
            rewards = stepped.rewards if stepped.learner_rewards is None else stepped.learner_rewards
            self._rewards[t] = torch.from_numpy(rewards)
            self._mark_ends(t, stepped)
            if stepped.final_observations is not None and stepped.truncated.any():
                rows = torch.from_numpy(np.flatnonzero(stepped.truncated))
                last = torch.from_numpy(stepped.final_observations[stepped.truncated])
                cut_off.append((t, rows, act(last).values.to("cpu")))
        self._values[T] = act(self._observations[T]).values
        self._next_values.copy_(self._values[1:])
        for t, rows, values in cut_off:
            self._next_values[t, rows] = values
        return Trajectory(
            observations=self._observations[:T],
            actions=self._actions,
            log_probabilities=self._log_probabilities,
            values=self._values[:T],
            next_values=self._next_values,
            rewards=self._rewards,
            discounts=self._discounts,
            continues=self._continues,
        )

    def take_episodes(self) -> list[Episode]:
        """The full games that ended since the last call, with their true scores."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def _mark_ends(self, t: int, stepped: Stepped) -> None:
        ended = stepped.terminated | stepped.truncated
        # A lost life ends nothing but what the learner may hope for.
        stops = stepped.terminated if stepped.life_lost is None else stepped.terminated | stepped.life_lost
        self._discounts[t] = torch.from_numpy(np.where(stops, 0.0, self._discount))
        self._continues[t] = torch.from_numpy(np.where(stops | ended, 0.0, 1.0))
        self._returns += stepped.rewards
        self._lengths += 1
        for row in np.flatnonzero(ended):
            self._episodes.append(Episode(float(self._returns[row]), int(self._lengths[row])))
            self._returns[row] = 0.0
            self._lengths[row] = 0
