"""
B single environments in one process, stepped one after another.

The loop takes the observation, the reward, the two flags, the action mask and the metrics of a game, and copies them at
once. An environment may reuse its arrays, and its `info` may hold anything.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rl_agent.environments.interface import Stepped, checked, unsound_games, unsound_step
from rl_agent.environments.spaces import Observations, ObservationSpace
from rl_agent.games import Metrics, MetricsReader


class Read(Protocol):
    """The array of an observation; it may be a view of what the environment shows."""

    def __call__(self, observation: Any, info: Any, *, is_last: bool = False) -> NDArray[Any]: ...


class StepLoop:
    """Environments, each with how its observations are read, which are arrays of one shape and type."""

    def __init__(self, games: Sequence[tuple[gymnasium.Env[Any, Any], Read]], space: ObservationSpace) -> None:
        self.games = games
        self._metrics = MetricsReader()
        self._space = space
        self._shape, self._dtype = (len(games), *space.shape), space.dtype

    def reset(self, seed: int) -> Observations:
        """Environment k is seeded with seed + k."""
        observations = np.empty(self._shape, self._dtype)
        for row, (environment, read) in enumerate(self.games):
            observations[row] = read(*environment.reset(seed=seed + row))
        return observations

    def step(self, actions: Iterable[Any]) -> Stepped:
        """
        Step each environment with its action, and reset those whose game ends.

        A game with a number that is not sound is cut off: a simulation may show NaN until it is reset.
        """
        count = len(self.games)
        observations, final = np.empty(self._shape, self._dtype), None
        rewards, (terminated, truncated) = np.empty(count, np.float32), np.empty((2, count), np.bool_)
        metrics: dict[int, Metrics] = {}
        for row, ((environment, read), action) in enumerate(zip(self.games, actions, strict=True)):
            # An ellipsis lets an array that holds one number pass for the number.
            seen, rewards[row, ...], terminated[row, ...], truncated[row, ...], info = environment.step(action)
            if terminated[row] or truncated[row]:
                final = np.zeros_like(observations) if final is None else final
                final[row] = read(seen, info, is_last=True)
                metrics[row] = self._metrics.read(info)
                seen, info = environment.reset()
            observations[row] = read(seen, info)
        stepped = Stepped(observations, rewards, terminated, truncated, final, metrics=metrics)
        if (unsound := unsound_step(stepped, self._space)) is None:
            return stepped
        for row in unsound_games(stepped, self._space):
            environment, read = self.games[row]
            final = np.zeros_like(observations) if final is None else final
            final[row], truncated[row] = observations[row], True
            observations[row] = read(*environment.reset())
        return checked(replace(stepped, final_observations=final), self._space, unsound=unsound)

    def close(self) -> None:
        """Close each environment, also after one whose close() raises."""
        with ExitStack() as closing:
            for environment, _ in self.games:
                closing.callback(environment.close)
