"""
A custom environment: a corridor of rooms, with the treasure at its right end.

    rl-cluster --environment examples.environment:make_corridor --max-minutes 1
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit


class Corridor(gymnasium.Env[Any, Any]):
    """The treasure is worth 1 and ends the game; each step in the first room is worth 0.001."""

    action_space = Discrete(2)  # 0: left, 1: right

    def __init__(self, rooms: int) -> None:
        self.rooms = rooms
        self.observation_space = Box(0, 1, (rooms,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.room = max(0, self.room + (1 if action == 1 else -1))
        is_there = self.room == self.rooms - 1
        return self._seen(), 1.0 if is_there else 0.001 * (self.room == 0), is_there, False, {}

    def _seen(self) -> Any:
        return np.eye(self.rooms, dtype=np.float32)[self.room]


def make_corridor(rooms: int = 10) -> gymnasium.Env[Any, Any]:
    """The function that the import path names, called once for each environment of each worker."""
    return TimeLimit(Corridor(rooms), max_episode_steps=5 * rooms)
