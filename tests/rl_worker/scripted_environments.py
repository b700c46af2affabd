"""
Environments that play what a test wrote down, whatever the actions.

An observation says where it is from: (row, game, step of the game). So a test can tell every observation from every
other, and a value made of it (`value_of`) tells which observation was looked at.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_worker.environments import ActionSpace, DiscreteActions, Stepped
from rl_worker.rollouts import ActionChoice

NOWHERE = -1e6  # in final observations of games that have not ended: nobody may look at it


@dataclass(frozen=True)
class Game:
    """One game: a reward for each of its steps, and how the last of them ends it."""

    rewards: tuple[float, ...]
    end: Literal["terminated", "truncated", "both"]
    lives_lost: tuple[int, ...] = ()  # steps that cost a life

    def ends(self, step: int, how: str) -> bool:
        return step == len(self.rewards) - 1 and self.end in (how, "both")


class ScriptedEnvironments:
    """Row k plays `scripts[k]`, its games one after another, again and again."""

    observation_shape: tuple[int, ...] = (3,)
    observation_dtype: np.dtype[Any] = np.dtype(np.float32)
    actions: ActionSpace = DiscreteActions(4)

    def __init__(self, *scripts: list[Game]) -> None:
        self.description: dict[str, Any] = {}
        self.count = len(scripts)
        self.taken: list[list[int]] = []  # the actions of each step
        self.seeds: list[int] = []
        self.closed = False
        self._scripts = scripts
        self._counts_lives = any(game.lives_lost for script in scripts for game in script)
        self._at = [[0, 0] for _ in scripts]  # game and step that each row is at

    def reset(self, seed: int) -> NDArray[Any]:
        self.seeds.append(seed)
        return self._observations()

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        self.taken.append(actions.tolist())
        games = [script[game % len(script)] for script, (game, _) in zip(self._scripts, self._at, strict=True)]
        steps = [step for _, step in self._at]
        now = list(zip(games, steps, strict=True))
        rewards = np.array([game.rewards[step] for game, step in now], dtype=np.float32)
        terminated = np.array([game.ends(step, "terminated") for game, step in now])
        truncated = np.array([game.ends(step, "truncated") for game, step in now])
        lives = np.array([step in game.lives_lost for game, step in now]) if self._counts_lives else None
        ended = terminated | truncated
        for at in self._at:
            at[1] += 1
        final = np.where(ended[:, None], self._observations(), np.float32(NOWHERE)) if ended.any() else None
        for row in np.flatnonzero(ended):
            self._at[row] = [self._at[row][0] + 1, 0]
        return Stepped(self._observations(), rewards, terminated, truncated, final, lives)

    def screen(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True

    def _observations(self) -> NDArray[np.float32]:
        return np.array([(row, game, step) for row, (game, step) in enumerate(self._at)], dtype=np.float32)


def value_of(row: float, game: float, step: float) -> float:
    """What the scripted behaviour policy says an observation is worth."""
    return 100 * row + 10 * game + step


def act(observations: Tensor) -> ActionChoice:
    """Actions count the steps of the game; a value says which observation it is of, a log-probability its negative."""
    assert (observations > NOWHERE).all(), "looked at a final observation of a game that goes on"
    values = observations @ torch.tensor([100.0, 10.0, 1.0])
    return ActionChoice((observations[:, 2] % 4).to(torch.int64), -values, values)


class Bandit(ScriptedEnvironments):
    """Games of one step, which ends them; each action has its reward."""

    def __init__(self, arms: list[float], *, count: int) -> None:
        super().__init__(*[[Game((0.0,), "terminated")]] * count)
        self._arms = np.array(arms, dtype=np.float32)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        stepped = super().step(actions)
        return Stepped(stepped.observations, self._arms[actions], stepped.terminated, stepped.truncated, None)

    def _observations(self) -> NDArray[np.float32]:
        return np.ones((self.count, 3), dtype=np.float32)
