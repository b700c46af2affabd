"""Environments that show the number of their step, in spaces of every kind."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_agent.environments.interface import Environments

STEPS = 10  # of a game
NUMBERS = Box(0, 255, (3,), np.float32)
DOUBLES = Box(0, 255, (3,), np.float64)
PICTURE = Box(0, 255, (9, 8, 3), np.uint8)
CHANNELS_FIRST = Box(0, 255, (3, 9, 8), np.uint8)
SPACES = {
    "a vector": NUMBERS,
    "doubles": DOUBLES,
    "a picture": PICTURE,
    "channels first": CHANNELS_FIRST,
    "a Dict": Dict(camera=PICTURE, joints=NUMBERS),
    "a Tuple": Tuple((CHANNELS_FIRST, PICTURE)),
    "a Dict of vectors": Dict(a=NUMBERS, b=DOUBLES),
}


class Counts(gymnasium.Env[Any, Any]):
    """Fills what it shows with 50 times its number plus the step; each game is cut off after ten steps."""

    action_space = Discrete(2)

    def __init__(self, space: Space[Any], number: int = 0) -> None:
        self.observation_space, self.number, self.t = space, number, 0
        self.is_open = True

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.t = 0
        return self.shown(), self.info()

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        return self.shown(), self.reward(), False, self.t == STEPS, self.info()

    def shown(self) -> Any:
        return filled(self.observation_space, self.number * 50 + self.t)

    def reward(self) -> Any:
        return float(self.t)

    def info(self) -> Any:
        return {}

    def close(self) -> None:
        self.is_open = False


def filled(space: Space[Any], value: int) -> Any:
    """An observation of the space whose numbers all have this value."""
    match space:
        case Discrete():
            return 0
        case Dict():
            return {name: filled(part, value) for name, part in space.spaces.items()}
        case Tuple():
            return tuple(filled(part, value) for part in space.spaces)
    return np.full(space.shape, value, space.dtype)


def written(array: Any, value: int) -> Any:
    """The same arrays, with this value in each."""
    for part in array.values() if isinstance(array, dict) else array if isinstance(array, tuple) else [array]:
        part[...] = value
    return array


class Reuses(VectorEnv[Any, Any, Any]):
    """Writes every step of all games into the same arrays, the last observations too."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (as in Gymnasium)
    space: Space[Any]
    as_shown: Callable[[Any], Any] = staticmethod(lambda array: array)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = self.space, Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(self.space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.seen, self.last = filled(self.observation_space, 0), filled(self.space, 0)
        self.rewards = np.zeros(num_envs, np.float32)
        self.ends = np.zeros(num_envs, np.bool_)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return self.as_shown(written(self.seen, 0)), {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        self.rewards[:] = self.t
        self.ends[:] = self.t == STEPS
        info = {"final_obs": [written(self.last, STEPS)] * self.num_envs} if self.ends.any() else {}
        self.t %= STEPS
        written(self.seen, self.t)
        never = np.zeros_like(self.ends)
        return *map(self.as_shown, (self.seen, self.rewards, never, self.ends)), info


def values_of(environments: Environments, observations: Any) -> list[list[int]]:
    """The numbers that stand in each row."""
    parts = [part for part in environments.observations.parts if part.kind != "mask"]
    seen = [part.of(observations) for part in parts] or [observations]
    return [
        sorted({int(number) for part in seen for number in np.unique(part[row])}) for row in range(len(observations))
    ]


def steps(environments: Environments, count: int) -> Any:
    for _ in range(count):
        stepped = environments.step(np.zeros(environments.count, np.int64))
    return stepped
