"""
`--lost-game-reward`: the learner receives this reward for the last step of a lost game. The reported score stays true.

A game is lost if it terminates with a true return below 0; a game truncated by a time limit is not. The wrapper fits
any family of environments.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rl_agent.environments.interface import Environments, Screen, Stepped
from rl_agent.environments.spaces import Actions, Observations


class LostGames:
    """A wrapper that adds `learner_rewards` to every step."""

    def __init__(self, environments: Environments, reward: float) -> None:
        self._environments = environments
        self._reward = np.float32(reward)
        self._returns = np.zeros(environments.count)  # of the games being played
        self.count = environments.count
        self.observations = environments.observations
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
