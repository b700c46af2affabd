"""How an agent plays without learning: one decision after another, with its recurrent state."""

import numpy as np
import torch

from rl_worker.algorithms.algorithm import Algorithm, Outlook
from rl_worker.environments.interface import Environments, Stepped
from rl_worker.rollouts import Decision


class Player:
    """An agent in environments, which are reset with `seed`."""

    def __init__(self, agent: Algorithm, environments: Environments, *, greedy: bool, seed: int) -> None:
        self._agent = agent
        self._environments = environments
        self._greedy = greedy
        self._observations = torch.from_numpy(environments.reset(seed))
        self._state = agent.initial_state(environments.count)
        self._starts = torch.ones(environments.count, dtype=torch.bool)

    def decide(self) -> Decision:
        """Actions for the observations of now."""
        return self._agent.act(self._observations, self._state, self._starts, greedy=self._greedy)

    def outlook(self) -> Outlook:
        """The agent's expectations for the present observations."""
        return self._agent.outlook(self._observations, self._state, self._starts)

    def take(self, decision: Decision) -> Stepped:
        """Step every environment once."""
        stepped = self._environments.step(decision.actions.cpu().numpy())
        self._observations, self._state = torch.from_numpy(stepped.observations), decision.state
        self._starts = torch.from_numpy(np.logical_or(stepped.terminated, stepped.truncated))
        return stepped
