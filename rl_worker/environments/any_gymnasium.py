"""
Any registered Gymnasium id, or a user's own function: copies in one process, stepped one after another.

gymnasium_spaces.py makes one array of each observation, and the environment's actions of the agent's.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from common.errors import SettingsError
from common.settings.import_paths import is_import_path
from common.settings.run_spec import Environment
from rl_worker.environments.gymnasium_spaces import ActionCodec, ArrayObservation, shows_masks
from rl_worker.environments.ids import not_installed, spec_of
from rl_worker.environments.interface import DEFAULT_STEPS_PER_SECOND, Screen, Stepped
from rl_worker.environments.own_environment import own_spec, wrapped
from rl_worker.environments.process_guard import guard_children
from rl_worker.environments.spaces import Actions, Observations

WITHOUT_CHILDREN = ("gymnasium.", "minatar.")  # entry points of environments that start no processes
SMALLEST_SCREEN = 200  # rows; smaller screens, such as MinAtar's 10, are enlarged


class GymnasiumEnvironments:
    """B environments of one id, in this process."""

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; leave it out")
        self._env = _vector_environment(settings, count, with_screen)
        self.count = count
        first: Any = self._env.envs[0]
        assert isinstance(first, ArrayObservation), "_vector_environment makes them"
        self._codec = first.codec
        self.actions = self._codec.actions
        self.observations = first.array_space
        self.steps_per_second = float(self._env.get_attr("metadata")[0].get("render_fps") or DEFAULT_STEPS_PER_SECOND)
        self.description: dict[str, Any] = {
            "environment": settings.id,
            **({"wrappers": ", ".join(settings.wrapper)} if settings.wrapper else {}),
            "observation": str(self.observations),
            "actions": str(first.action_space) + (f", of these {list(settings.actions)}" if settings.actions else ""),
            "time limit": first.spec.max_episode_steps if first.spec else None,
        }

    def reset(self, seed: int) -> Observations:
        observations: Observations = self._env.reset(seed=seed)[0]
        return observations

    def step(self, actions: Actions) -> Stepped:
        observations, rewards, terminated, truncated, info = self._env.step(self._codec.native(actions))
        final = final_rows(observations, info) if "final_obs" in info else None
        return Stepped(observations, rewards.astype(np.float32), terminated, truncated, final)

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


def made_environment(settings: Environment, *, with_screen: bool = False) -> gymnasium.Env[Any, Any]:
    """One environment of the id, without the wrappers of the settings. Raises SettingsError."""
    spec = own_spec(settings.id) if is_import_path(settings.id) else spec_of(settings.id)
    if not str(spec.entry_point).startswith(WITHOUT_CHILDREN):
        guard_children()
    # Some environments accept no render_mode argument, so it is passed only when a screen is needed.
    screen: dict[str, Any] = {"render_mode": "rgb_array"} if with_screen else {}
    try:
        return gymnasium.make(spec, max_episode_steps=settings.max_episode_steps or None, **screen)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise not_installed(settings.id, str(spec.entry_point), error) from error
    except gymnasium.error.Error as error:
        raise SettingsError(f"--environment {settings.id}: {error}") from error
    except TypeError as error:
        if not with_screen or "render_mode" not in str(error):
            raise
        raise SettingsError(f"--environment {settings.id}: cannot render (render_mode): {error}") from error


def _vector_environment(settings: Environment, count: int, with_screen: bool) -> SyncVectorEnv:
    known: list[bool] = []  # whether masks come in `info`: asked once, since it takes a reset

    def make_one() -> ArrayObservation:
        environment = made_environment(settings, with_screen=with_screen)
        try:
            environment = wrapped(environment, settings.wrapper)
            codec = ActionCodec(settings, environment.action_space)
            if settings.action_mask == "none":
                return ArrayObservation(environment, codec, masks="none")
            if not known:
                known.append(shows_masks(environment))
            return ArrayObservation(environment, codec, masks="info" if known[0] else "key")
        except SettingsError:
            environment.close()
            raise

    return SyncVectorEnv([make_one] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def final_rows(observations: Observations, info: dict[str, Any]) -> Observations:
    """A copy of the observations; rows of ended episodes hold the final observation, from SyncVectorEnv's `info`."""
    final = observations.copy()
    for row in np.flatnonzero(info["_final_obs"]):
        final[row] = info["final_obs"][row]
    return final
