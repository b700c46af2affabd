"""
The trial of a user's own environment and wrappers before anything is started: a reset and a step of each part in turn.

Errors name the part by its flag. A wrapper is tried around parts that have passed, so the fault is its own. Gymnasium
itself checks environments without their wrappers, and of most faults it only warns.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from common.errors import SettingsError
from common.settings.import_paths import is_import_path
from common.settings.run_spec import Environment
from rl_worker.environments.any_gymnasium import made_environment
from rl_worker.environments.gymnasium_spaces import ActionCodec
from rl_worker.environments.own_environment import made_vectors, makes_vectors, wrapped
from rl_worker.local.own_errors import tried

SEED = 0
RESET = "reset(*, seed=None, options=None) must return (observation, info)"
STEP = "step(action) must return (observation, reward, terminated, truncated, info)"


def check_own_environment(settings: Environment) -> None:
    """Raises SettingsError that names the first part that cannot be reset and stepped."""
    flag = f"--environment {settings.id}"
    is_vector = is_import_path(settings.id) and makes_vectors(settings.id)
    kind: type = VectorEnv if is_vector else gymnasium.Env
    with tried(flag):
        environment: Any = made_vectors(settings.id, 1) if is_vector else made_environment(settings)
    parts = [(flag, environment)]
    try:
        for path in settings.wrapper:
            flag = f"--wrapper {path}"
            with tried(flag):
                environment = wrapped(environment, [path], kind=kind)
            parts.append((flag, environment))
        ActionCodec(settings, environment.single_action_space if is_vector else environment.action_space)
        for flag, part in parts:
            _check(part, flag)
    finally:
        environment.close()


def _check(environment: Any, flag: str) -> None:
    with tried(flag):
        seen, _ = _results(environment.reset(seed=SEED), 2, f"{flag}: its {RESET}")
        _check_observation(environment, seen, f"{flag}: its reset()")
        results = _results(environment.step(environment.action_space.sample()), 5, f"{flag}: its {STEP}")
        _check_observation(environment, results[0], f"{flag}: its step()")
        rewards = np.asarray(results[1], np.float32)  # None becomes NaN
        if rewards.size != getattr(environment, "num_envs", 1) or not np.isfinite(rewards).all():
            raise SettingsError(f"{flag}: its step() returned the reward {results[1]!r}, which is no finite number")


def _results(returned: Any, count: int, needed: str) -> tuple[Any, ...]:
    if not isinstance(returned, tuple):
        raise SettingsError(f"{needed}, not {type(returned).__name__}")
    if len(returned) != count:
        raise SettingsError(f"{needed}, not {len(returned)} values")
    if not isinstance(returned[-1], dict):
        raise SettingsError(f"{needed}, where info is a dict, not {type(returned[-1]).__name__}")
    return returned


def _check_observation(environment: Any, seen: Any, what: str) -> None:
    space = environment.observation_space
    if isinstance(space, Box) and np.size(seen) != np.prod(space.shape):
        raise SettingsError(
            f"{what} returned an observation of shape {np.shape(seen)}, and its space has {space.shape}"
        )
