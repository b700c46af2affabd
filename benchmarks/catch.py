"""Catch: a ball falls from the top of a 10×5 board, a paddle at the bottom has nine steps to be under it."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

ID = "Catch-v0"
ROWS, COLUMNS = 10, 5


class Catch(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Reward 1 for a caught ball, −1 for a missed one; actions: left, stay, right."""

    observation_space = Box(0.0, 1.0, (ROWS * COLUMNS,), np.float32)
    action_space = Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._ball = [0, int(self.np_random.integers(COLUMNS))]
        self._paddle = COLUMNS // 2
        return self._board(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + int(action) - 1, 0), COLUMNS - 1)
        self._ball[0] += 1
        landed = self._ball[0] == ROWS - 1
        reward = (1.0 if self._ball[1] == self._paddle else -1.0) if landed else 0.0
        return self._board(), reward, landed, False, {}

    def _board(self) -> NDArray[np.float32]:
        board = np.zeros((ROWS, COLUMNS), dtype=np.float32)
        board[self._ball[0], self._ball[1]] = 1.0
        board[ROWS - 1, self._paddle] = 1.0
        return board.reshape(-1)


gymnasium.register(ID, "benchmarks.catch:Catch")
