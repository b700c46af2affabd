"""
Fruit: a game in 64×64 RGB pixels, in which colours matter.

A white square walks on a board of 8×8 fields. The green fruit gives 1, the red one −1; an eaten fruit comes back at
another field. A game has 60 steps. A player who goes straight to the green fruit makes about ten points, random play 0.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

ID = "Fruit-v0"
FIELDS, PIXELS = 8, 8  # of a side of the board; of a side of a field
STEPS = 60
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
WHITE, GREEN, RED = (255, 255, 255), (0, 255, 0), (255, 0, 0)

Screen = NDArray[np.uint8]


class Fruit(gymnasium.Env[Screen, np.int64]):
    """Actions: up, down, left, right."""

    observation_space = Box(0, 255, (FIELDS * PIXELS, FIELDS * PIXELS, 3), np.uint8)
    action_space = Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Screen, dict[str, Any]]:
        super().reset(seed=seed)
        self.player, self.green, self.red = (
            divmod(int(at), FIELDS) for at in self.np_random.choice(FIELDS * FIELDS, 3, False)
        )
        return self._screen(), {}

    def step(self, action: np.int64) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        row, column = (at + move for at, move in zip(self.player, MOVES[int(action)], strict=True))
        self.player = (min(max(row, 0), FIELDS - 1), min(max(column, 0), FIELDS - 1))
        reward = 0.0
        if self.player == self.green:
            reward, self.green = 1.0, self._free_field()
        elif self.player == self.red:
            reward, self.red = -1.0, self._free_field()
        return self._screen(), reward, False, False, {}

    def _free_field(self) -> tuple[int, int]:
        while True:
            field = divmod(int(self.np_random.integers(FIELDS * FIELDS)), FIELDS)
            if field not in (self.player, self.green, self.red):
                return field

    def _screen(self) -> Screen:
        screen = np.zeros((FIELDS * PIXELS, FIELDS * PIXELS, 3), np.uint8)
        for (row, column), colour in ((self.green, GREEN), (self.red, RED), (self.player, WHITE)):
            screen[row * PIXELS : (row + 1) * PIXELS, column * PIXELS : (column + 1) * PIXELS] = colour
        return screen


gymnasium.register(ID, "benchmarks.trials.fruit:Fruit", max_episode_steps=STEPS)
