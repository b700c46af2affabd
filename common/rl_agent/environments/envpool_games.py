"""EnvPool, `envpool/NAME`, as a vector environment: B games stepped in C++, for two to three microseconds each."""

import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.custom_environment import VectorEnvironments
from rl_agent.environments.failures import FailureCount
from rl_agent.environments.ids import not_installed

PREFIX = "envpool/"


class EnvPoolGames(VectorEnv[Any, Any, Any]):
    """EnvPool resets a game in the step after its end; here that is done in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (as in Gymnasium)

    def __init__(self, settings: Environment, count: int, threads: int) -> None:
        """Raises SettingsError where EnvPool is not installed, or has no environment of this name."""
        self.num_envs, self._settings, self._threads = count, settings, threads
        self._pool = self._made(seed=0)
        with warnings.catch_warnings(action="ignore"):  # Gymnasium warns of the precision of its bounds
            self.single_observation_space = self._pool.observation_space
            self.single_action_space = self._pool.action_space
        if not isinstance(self.single_observation_space, Box):
            space = self.single_observation_space
            raise SettingsError(f"--environment {settings.id}: its observation space is {space}; supported is a Box")
        self.observation_space = batch_space(self.single_observation_space, count)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._pool.close()
        self._pool = self._made(seed=seed)
        return self._pool.reset()[0], {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        seen, rewards, terminated, truncated, _ = self._pool.step(actions)
        # A simulation may show NaN until it is reset: such a game is cut off.
        is_finite = np.isfinite(rewards) & np.isfinite(seen).reshape(self.num_envs, -1).all(1)
        truncated = (truncated | ~is_finite) & ~terminated
        rows = np.flatnonzero(terminated | truncated).astype(np.int32)
        if not len(rows):
            return seen, rewards, terminated, truncated, {}
        last, seen = seen, np.array(seen)
        seen[rows] = self._pool.reset(rows)[0]
        return seen, rewards, terminated, truncated, {"final_obs": last}

    def close_extras(self, **_: Any) -> None:
        self._pool.close()

    def _made(self, *, seed: int) -> Any:
        name = self._settings.id.removeprefix(PREFIX)
        try:
            import envpool
        except ImportError as error:
            raise not_installed(self._settings.id, PREFIX, error) from error
        if name not in envpool.list_all_envs():
            raise SettingsError(f"--environment {self._settings.id}: EnvPool has no environment of this name")
        limit = {"max_episode_steps": steps} if (steps := self._settings.max_episode_steps) else {}
        seeds = [seed + row for row in range(self.num_envs)]
        # Parallelism comes from worker processes.
        return envpool.make_gymnasium(name, num_envs=self.num_envs, num_threads=self._threads, env_seed=seeds, **limit)


def make(
    settings: Environment, count: int, *, threads: int, with_screen: bool, failures: FailureCount | None
) -> VectorEnvironments:
    """As families.py says."""
    if with_screen:
        raise SettingsError(f"--environment {settings.id}: EnvPool draws no screens")
    return VectorEnvironments(settings, count, with_screen, EnvPoolGames(settings, count, threads), failures=failures)
