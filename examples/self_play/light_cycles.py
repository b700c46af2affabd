"""Light cycles, a game for two in PettingZoo's parallel API: who runs into a trail, a wall or the other one loses."""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from examples.self_play.agents_as_rows import AgentsAsRows

SIZE, REACH = 10, 4  # rows and columns of the board, an even number; cells that are seen to each side
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left
SEEN, CHOICES = Box(-1, 1, ((2 * REACH + 1) ** 2 + 2,), np.float32), Discrete(len(MOVES))
BOTH = ["red", "blue"]


def light_cycles(num_envs: int, pool: str = "") -> AgentsAsRows:
    return AgentsAsRows(LightCycles, num_envs, pool=pool, imports=[__name__])


class LightCycles(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo has no types
    """The winner gets 1, the loser −1. Each sees which cells around it are taken, and where the other one is."""

    metadata = {"name": "light_cycles_v0"}  # noqa: RUF012  (as in PettingZoo)
    possible_agents = BOTH

    def observation_space(self, agent: str) -> Box:
        return SEEN

    def action_space(self, agent: str) -> Any:
        return CHOICES

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.board = BOTH, np.pad(np.zeros((SIZE, SIZE)), REACH, constant_values=1)
        place = np.random.default_rng(seed).integers(REACH, REACH + SIZE, 2)
        self.places = np.stack([place, len(self.board) - 1 - place])  # opposite to each other: neither is better off
        self.board[tuple(self.places.T)] = 1
        return self._seen(), {agent: {} for agent in BOTH}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        onto = self.places + MOVES[[int(actions[agent]) for agent in BOTH]]
        has_lost = (self.board[tuple(onto.T)] == 1) | (onto[0] == onto[1]).all()
        self.places = np.where(has_lost[:, None], self.places, onto)
        self.board[tuple(self.places.T)] = 1
        self.agents, is_over = ([], True) if has_lost.any() else (BOTH, False)
        rewards = dict(zip(BOTH, has_lost[::-1] * 1.0 - has_lost, strict=True))
        return self._seen(), rewards, dict.fromkeys(BOTH, is_over), dict.fromkeys(BOTH, False), {a: {} for a in BOTH}

    def _seen(self) -> dict[str, Any]:
        seen = {}
        for agent, (row, column), other in zip(BOTH, self.places, self.places[::-1], strict=True):
            around = self.board[row - REACH : row + REACH + 1, column - REACH : column + REACH + 1]
            seen[agent] = np.append(around, (other - (row, column)) / SIZE).astype(np.float32)
        return seen
