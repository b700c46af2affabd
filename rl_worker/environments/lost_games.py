"""
A lost game hurts: the learner sees the last reward of a game lost with a score below 0 replaced; the score stays true.

Around any family of environments. A game is lost when it terminates with a true return below 0; one cut off by a time
limit is not.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rl_worker.environments.interface import Actions, Environments, Observations, Screen, Stepped


class LostGames:
    """The environments, with `learner_rewards` in every step."""

    def __init__(self, environments: Environments, reward: float) -> None:
        self._environments = environments
        self._reward = np.float32(reward)
        self._returns = np.zeros(environments.count)  # of the games being played
        self.count = environments.count
        self.observation_shape = environments.observation_shape
        self.observation_dtype = environments.observation_dtype
        self.actions = environments.actions
        self.steps_per_second = environments.steps_per_second
        self.description = environments.description | {"last reward of a lost game": reward}

    def reset(self, seed: int) -> Observations:
        self._returns[:] = 0
        return self._environments.reset(seed)

    def step(self, actions: Actions) -> Stepped:
        stepped = self._environments.step(actions)
        self._returns += stepped.rewards
        lost = stepped.terminated & (self._returns < 0)
        self._returns[stepped.terminated | stepped.truncated] = 0
        rewards: NDArray[np.float32] = np.where(lost, self._reward, stepped.rewards)
        return replace(stepped, learner_rewards=rewards)

    def screen(self) -> Screen:
        return self._environments.screen()

    def close(self) -> None:
        self._environments.close()
