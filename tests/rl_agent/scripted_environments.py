"""
Environments that play a script, whatever the actions.

An observation is (row, game, step of the game). So every observation differs from every other, and so does its value
(`value_of`).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_agent.environments.interface import Stepped
from rl_agent.environments.spaces import ActionSpace, BoxActions, DiscreteActions, ObservationSpace
from rl_agent.rollouts import Decision, State

NOWHERE = -1e6  # in final observations of games that have not ended: never to be used


@dataclass(frozen=True)
class Game:
    """One game: a reward for each of its steps, and how the last of them ends it."""

    rewards: tuple[float, ...]
    end: Literal["terminated", "truncated", "both"]
    lives_lost: tuple[int, ...] = ()  # steps that cost a life

    def ends(self, step: int, how: str) -> bool:
        return step == len(self.rewards) - 1 and self.end in (how, "both")


class ScriptedEnvironments:
    """Row k plays the games of `scripts[k]` in turn, again and again."""

    observations = ObservationSpace((3,), np.dtype(np.float32))
    actions: ActionSpace = DiscreteActions(4)

    def __init__(self, *scripts: list[Game]) -> None:
        self.description: dict[str, Any] = {}
        self.steps_per_second = 10.0
        self.count = len(scripts)
        self.taken: list[Any] = []  # the actions of each step
        self.seeds: list[int] = []
        self.closed = False
        self._scripts = scripts
        self._counts_lives = any(game.lives_lost for script in scripts for game in script)
        self._at = [[0, 0] for _ in scripts]  # game and step that each row is at

    def reset(self, seed: int) -> NDArray[Any]:
        self.seeds.append(seed)
        return self._observations()

    def step(self, actions: NDArray[Any]) -> Stepped:
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
    """The value that the scripted behaviour policy gives an observation."""
    return 100 * row + 10 * game + step


class ScriptedActor:
    """
    Actions count the steps of the game; each observation has its own value, and the negative as log-probability. The
    state counts the observations of the episode. `looks` are the observations of all calls.
    """

    def __init__(self) -> None:
        self.looks: list[Tensor] = []

    def initial_state(self, count: int) -> State:
        return (torch.zeros(count),)

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        assert (observations > NOWHERE).all(), "acted on a final observation of a game that goes on"
        self.looks.append(observations.clone())
        values = observations.to(torch.float32) @ torch.tensor([100.0, 10.0, 1.0])
        recorded = {"values": values, "log_probabilities": -values}
        return Decision((observations[:, 2] % 4).to(torch.int64), (state[0] * ~starts + 1,), recorded)


class Bandit(ScriptedEnvironments):
    """Games of one step, which ends them; each action has its reward."""

    def __init__(self, arms: list[float], *, count: int) -> None:
        super().__init__(*[[Game((0.0,), "terminated")]] * count)
        self._arms = np.array(arms, dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> Stepped:
        stepped = super().step(actions)
        return Stepped(stepped.observations, self._arms[actions], stepped.terminated, stepped.truncated, None)

    def _observations(self) -> NDArray[np.float32]:
        return np.ones((self.count, 3), dtype=np.float32)


class OneState(ScriptedEnvironments):
    """Always the same observation."""

    observations = ObservationSpace((1,), np.dtype(np.float32))

    def _observations(self) -> NDArray[np.float32]:
        return np.ones((self.count, 1), dtype=np.float32)


class Target(OneState):
    """Games of one step; the nearer the action a is to the goal, the better: the reward is −|a − goal|²."""

    def __init__(self, goal: list[float], *, count: int) -> None:
        super().__init__(*[[Game((0.0,), "terminated")]] * count)
        self.actions = BoxActions(np.full(len(goal), -1, np.float32), np.full(len(goal), 1, np.float32))
        self._goal = np.array(goal, dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> Stepped:
        stepped = super().step(actions)
        rewards = -np.square(np.clip(actions, -1, 1) - self._goal).sum(1)
        return Stepped(stepped.observations, rewards, stepped.terminated, stepped.truncated, None)
