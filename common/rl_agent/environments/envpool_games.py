"""
Environments of EnvPool, `envpool/NAME`: stepped in C++, B at a time, for two to three microseconds each.

EnvPool resets an ended environment one step later. It is told to do so at once here, so that the policy can act on
every row. Observations are plain vectors or images; EnvPool draws nothing.
"""

import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.gymnasium_spaces import ActionCodec
from rl_agent.environments.ids import not_installed
from rl_agent.environments.interface import DEFAULT_STEPS_PER_SECOND, Screen, Stepped, closed_if_refused
from rl_agent.environments.spaces import Actions, Observations, ObservationSpace
from rl_agent.environments.unsound_numbers import unsound_games

PREFIX = "envpool/"
BAR_PIXELS = 24  # of a screen: each number of the observation is a gray bar of this height and width


class EnvPoolEnvironments:
    """B environments of one name."""

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        if with_screen:
            raise SettingsError(f"--environment {settings.id}: EnvPool draws no screens")
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; leave it out")
        self.count = count
        self._settings = settings
        self._env = self._made(seed=0)
        seen, taken = self._env.observation_space, self._env.action_space
        with closed_if_refused(self):
            self._codec = ActionCodec(settings, taken)
            self.observations = _space(settings, seen)
        self.actions = self._codec.actions
        self.steps_per_second = DEFAULT_STEPS_PER_SECOND
        self.description: dict[str, Any] = {
            "environment": settings.id,
            "observation": str(self.observations),
            "actions": str(taken),
            "time limit": self._env.spec.config.max_episode_steps,
        }

    def reset(self, seed: int) -> Observations:
        self._env.close()
        self._env = self._made(seed=seed)
        self._seen = self._shown(self._env.reset()[0])
        return self._seen

    def step(self, actions: Actions) -> Stepped:
        seen, rewards, terminated, truncated, _ = self._env.step(self._codec.native(actions))
        observations, rewards, terminated = self._shown(seen), np.array(rewards), np.array(terminated)  # copies
        truncated = truncated & ~terminated
        # A game with a number that is not sound is cut off: a simulation may show NaN until it is reset.
        truncated[unsound_games(Stepped(observations, rewards, terminated, truncated, None), self.observations)] = True
        ended = terminated | truncated
        final = None
        if ended.any():
            final = observations.copy()
            rows = np.flatnonzero(ended).astype(np.int32)
            observations[rows] = self._shown(self._env.reset(rows)[0])
        self._seen = observations
        return Stepped(observations, rewards, terminated, truncated, final)

    def screen(self) -> Screen:
        """The last frame of the first game as the agent sees it; numbers are bars, from the least to the greatest."""
        first = self._seen[0]
        if self.observations.pixels:
            frame: Screen = first[-1]
            return frame
        span = max(float(np.ptp(first)), 1e-9)
        bars: Screen = ((first.ravel() - first.min()) / span * 255).astype(np.uint8)
        return bars[None].repeat(BAR_PIXELS, axis=0).repeat(BAR_PIXELS, axis=1)

    def close(self) -> None:
        self._env.close()

    def _made(self, *, seed: int) -> Any:
        name = self._settings.id.removeprefix(PREFIX)
        try:
            import envpool

            if name not in envpool.list_all_envs():
                raise SettingsError(f"--environment {self._settings.id}: EnvPool has no environment of this name")
            limit = {"max_episode_steps": steps} if (steps := self._settings.max_episode_steps) else {}
            seeds = [seed + row for row in range(self.count)]
            # Parallelism comes from worker processes.
            made = envpool.make_gymnasium(name, num_envs=self.count, num_threads=1, env_seed=seeds, **limit)
            with warnings.catch_warnings(action="ignore"):
                made.observation_space  # noqa: B018  (kept from now on; Gymnasium warns of the precision of its bounds)
            return made
        except ImportError as error:
            raise not_installed(self._settings.id, PREFIX, error) from error

    def _shown(self, seen: NDArray[Any]) -> Observations:
        """[B, …] as the agent sees it, writable."""
        if len(self.observations.shape) == 3 and seen.shape[1:] != self.observations.shape:
            seen = np.moveaxis(seen, -1, 1)
        return np.array(seen.reshape(len(seen), *self.observations.shape), dtype=self.observations.dtype)


def _space(settings: Environment, space: Any) -> ObservationSpace:
    if not isinstance(space, Box):
        raise SettingsError(f"--environment {settings.id}: its observation space is {space}; supported is a Box")
    if len(space.shape) != 3:
        return ObservationSpace((int(np.prod(space.shape)),), np.dtype(np.float32))
    dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
    first, second, last = space.shape
    return ObservationSpace((last, first, second) if last <= min(first, second) else space.shape, dtype)
