"""How an agent plays without learning: one step after another, with its recurrent state."""

import numpy as np
import torch

from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments.interface import Environments, Stepped


class Player:
    """An agent in environments, which are reset with `seed`."""

    def __init__(self, agent: Algorithm, environments: Environments, *, greedy: bool, seed: int) -> None:
        self._agent = agent
        self._environments = environments
        self._greedy = greedy
        self._observations = environments.reset(seed)
        self._state = agent.initial_state(environments.count)
        self._starts = np.ones(environments.count, dtype=np.bool_)

    def step(self) -> Stepped:
        """Choose actions and step every environment once."""
        observations, starts = torch.from_numpy(self._observations), torch.from_numpy(self._starts)
        decision = self._agent.act(observations, self._state, starts, greedy=self._greedy)
        stepped = self._environments.step(decision.actions.cpu().numpy())
        self._observations, self._state = stepped.observations, decision.state
        self._starts = stepped.terminated | stepped.truncated
        return stepped
