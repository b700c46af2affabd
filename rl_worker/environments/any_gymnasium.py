"""
Any registered Gymnasium id: copies in one process, stepped one after another.

Observations become one array: Dict, Tuple and Discrete ones are flattened (discrete parts one-hot), images with their
channels last get them first, and everything but uint8 becomes float32.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, TransformObservation
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings.run_spec import Environment
from rl_worker.environments.ids import action_table, not_installed, spec_of
from rl_worker.environments.interface import (
    Actions,
    ActionSpace,
    BoxActions,
    DiscreteActions,
    Observations,
    Screen,
    Stepped,
)
from rl_worker.environments.process_guard import guard_children

DEFAULT_STEPS_PER_SECOND = 30.0  # for an environment without `render_fps`
WITHOUT_CHILDREN = ("gymnasium.", "minatar.")  # entry points of environments that start no processes
SMALLEST_SCREEN = 200  # rows; smaller screens, such as MinAtar's 10, are enlarged


class GymnasiumEnvironments:
    """B environments of one id, in this process."""

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; leave it out")
        spec = spec_of(settings.id)
        if not str(spec.entry_point).startswith(WITHOUT_CHILDREN):
            guard_children()
        self._env = _vector_environment(settings, spec, count, with_screen)
        self.count = count
        self._space: Any = self._env.single_action_space
        try:
            self.actions, self._table = _actions_of(settings, self._space)
        except SettingsError:
            self._env.close()
            raise
        observations = self._env.single_observation_space
        assert isinstance(observations, Box), "_with_array_observations makes one"
        self.steps_per_second = float(self._env.get_attr("metadata")[0].get("render_fps") or DEFAULT_STEPS_PER_SECOND)
        self.observation_shape = observations.shape
        self.observation_dtype: np.dtype[Any] = np.dtype(np.uint8 if observations.dtype == np.uint8 else np.float32)
        self.description: dict[str, Any] = {
            "environment": settings.id,
            "observation": f"{self.observation_dtype} {list(self.observation_shape)}",
            "actions": str(self._space) + (f", of these {list(settings.actions)}" if settings.actions else ""),
            "time limit": settings.max_episode_steps or spec.max_episode_steps,
        }

    def reset(self, seed: int) -> Observations:
        observations, _ = self._env.reset(seed=seed)
        return self._typed(observations)

    def step(self, actions: Actions) -> Stepped:
        observations, rewards, terminated, truncated, info = self._env.step(self._native(actions))
        final = None
        if "final_obs" in info:
            final = final_rows(self._typed(observations), info)
        return Stepped(self._typed(observations), rewards.astype(np.float32), terminated, truncated, final)

    def screen(self) -> Screen:
        first = self._env.envs[0]
        if first.render_mode is None and "rgb_array" in first.metadata.get("render_modes", ()):
            # Environments read it when they render. Made with it, some would prepare what nobody may ever look at.
            first.unwrapped.render_mode = "rgb_array"
        rendered = first.render()
        assert rendered is not None, "this environment renders no rgb_array"
        screen = np.asarray(rendered)
        if screen.dtype != np.uint8:
            screen = (screen * 255).astype(np.uint8)  # MinAtar renders floats in [0, 1]
        larger = max(1, SMALLEST_SCREEN // len(screen))
        return screen.repeat(larger, axis=0).repeat(larger, axis=1)

    def close(self) -> None:
        self._env.close()

    def _native(self, actions: Actions) -> Any:
        if isinstance(self.actions, DiscreteActions):
            return self._table[actions]
        within = np.clip(actions, self.actions.low, self.actions.high)
        return within.reshape(self.count, *self._space.shape).astype(self._space.dtype)

    def _typed(self, observations: Observations) -> Observations:
        return observations.astype(self.observation_dtype, copy=False)


def _vector_environment(settings: Environment, spec: EnvSpec, count: int, with_screen: bool) -> SyncVectorEnv:
    # Some environments accept no render_mode argument, so it is passed only when a screen is needed.
    screen: dict[str, Any] = {"render_mode": "rgb_array"} if with_screen else {}

    def make_one() -> gymnasium.Env[Any, Any]:
        limit = settings.max_episode_steps or None
        return _with_array_observations(gymnasium.make(spec, max_episode_steps=limit, **screen), settings.id)

    try:
        return SyncVectorEnv([make_one] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise not_installed(settings.id, str(spec.entry_point), error) from error
    except gymnasium.error.Error as error:
        raise SettingsError(f"--environment {settings.id}: {error}") from error
    except TypeError as error:
        if not with_screen or "render_mode" not in str(error):
            raise
        raise SettingsError(f"--environment {settings.id}: cannot render (render_mode): {error}") from error


def _actions_of(settings: Environment, space: Any) -> tuple[ActionSpace, NDArray[np.int64]]:
    """The policy's action space; for discrete actions also the environment's number of each."""
    if isinstance(space, Discrete):
        table = action_table(settings, int(space.n)) + int(space.start)
        return DiscreteActions(len(table)), table
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise SettingsError(
            f"--environment {settings.id}: its action space is {space}; "
            "only Discrete and Box of floating-point numbers are supported"
        )
    if settings.actions:
        raise SettingsError(f"--actions: {settings.id} has the continuous action space {space}; leave --actions out")
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return BoxActions(low.ravel(), high.ravel()), np.empty(0, np.int64)


def final_rows(observations: Observations, info: dict[str, Any]) -> Observations:
    """A copy of the observations; rows of ended episodes hold the final observation, from SyncVectorEnv's `info`."""
    final = observations.copy()
    for row in np.flatnonzero(info["_final_obs"]):
        final[row] = info["final_obs"][row]
    return final


def _with_array_observations(environment: gymnasium.Env[Any, Any], name: str) -> gymnasium.Env[Any, Any]:
    """The environment with a Box as observation space; images have their channels first."""
    space = environment.observation_space
    if not isinstance(space, Box):
        if not space.is_np_flattenable:
            environment.close()
            raise SettingsError(f"--environment {name}: its observation space {space} cannot be flattened to an array")
        return FlattenObservation(environment)
    if not space.shape:
        return FlattenObservation(environment)
    image = len(space.shape) == 3 and space.dtype in (np.uint8, np.bool_)
    if image and space.shape[2] <= min(space.shape[:2]):
        channels_first = Box(space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1), dtype=space.dtype)
        return TransformObservation(environment, lambda image: image.transpose(2, 0, 1), channels_first)
    return environment
