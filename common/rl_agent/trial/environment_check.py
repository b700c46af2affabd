"""
The trial of an environment and its wrappers before anything is started: one game of each part in turn.

Errors name the part by its flag. A wrapper is tried around parts that could be played. What the outermost part shows is
compared with its spaces: training sees nothing else, and a wrapper may mend what is inside of it. Gymnasium itself
checks environments without their wrappers, for one step, and of most faults it only warns.
"""

import time
import warnings
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import VectorEnv

from ps_common.errors import SettingsError
from ps_common.protocol.names import MOST_REWARD, is_import_path
from ps_common.settings.run_spec import Environment
from rl_agent.environments.any_gymnasium import made_environment
from rl_agent.environments.custom_environment import made_vectors, makes_vectors, wrapped
from rl_agent.environments.gymnasium_spaces import MASK, REMEDY, ActionCodec, kept_type, leaves
from rl_agent.environments.imports import tried
from rl_agent.environments.interface import MOST_OBSERVATION, Environments, close_logged, first_unsound, random_play
from rl_agent.environments.spaces import fitted
from rl_agent.native_observations import within

SEED = 0
MOST_STEPS = 1000  # a game that is tried ends after so many steps
MOST_SECONDS = 1.0  # or after this time, whichever is first
RESET = "reset(*, seed=None, options=None) must return (observation, info)"
STEP = "step(action) must return (observation, reward, terminated, truncated, info)"


def check_environment(settings: Environment) -> None:
    """Raises SettingsError that names the first part that cannot be played; warns of values beyond their bounds."""
    flag = f"--environment {settings.id}"
    is_vector = is_import_path(settings.id) and makes_vectors(settings.id)
    kind: type = VectorEnv if is_vector else gymnasium.Env
    with tried(flag):
        environment: Any = made_vectors(settings, min(2, settings.envs)) if is_vector else made_environment(settings)
    parts = [(flag, environment)]
    try:
        for path in settings.wrapper:
            flag = f"--wrapper {path}"
            with tried(flag):
                environment = wrapped(environment, [path], kind=kind)
            parts.append((flag, environment))
        ActionCodec(settings, environment.single_action_space if is_vector else environment.action_space)
        for flag, part in parts:
            with tried(flag):
                _Trial(settings, part, flag, is_outermost=part is environment).play()
    finally:
        close_logged(environment)


class _Trial:
    """A game with random actions in one part."""

    def __init__(self, settings: Environment, environment: Any, flag: str, *, is_outermost: bool) -> None:
        self._environment, self._flag, self._is_outermost = environment, flag, is_outermost
        self._count = environment.num_envs if isinstance(environment, VectorEnv) else None
        self._random = np.random.default_rng(SEED)
        self._ignores_masks = settings.action_mask == "none"
        self._has_warned = False
        space = environment.action_space if self._count is None else environment.single_action_space
        self._codec: ActionCodec | None = None
        try:
            self._codec = ActionCodec(settings, space)
        except SettingsError:
            environment.action_space.seed(SEED)  # of a part whose actions a wrapper turns into others

    def play(self) -> None:
        """Until a game ends or time is up. Raises SettingsError."""
        seen, info = _results(self._environment.reset(seed=SEED), 2, f"{self._flag}: its {RESET}")
        self._check_observation(seen, "reset()", is_first=True)
        end = time.monotonic() + MOST_SECONDS
        for step in range(MOST_STEPS):
            returned = self._environment.step(self._action(seen, info))
            seen, reward, *ends, info = _results(returned, 5, f"{self._flag}: its {STEP}")
            self._check_observation(seen, "step()", is_first=step == 0)
            self._check_reward(reward, is_first=step == 0)
            has_ended = [self._check_flags(*named) for named in zip(("terminated", "truncated"), ends, strict=True)]
            if any(has_ended) or time.monotonic() > end:
                return

    def _action(self, seen: Any, info: dict[str, Any]) -> Any:
        """An action of the agent, one that the mask allows if there is one."""
        if self._codec is None:
            return self._environment.action_space.sample()
        mask = info.get(MASK, seen.get(MASK) if isinstance(seen, dict) else None)
        allowed = None
        if mask is not None and not self._ignores_masks:
            masks = [mask] if self._count is None else mask
            allowed = np.array([self._codec.mask(row) for row in masks], np.bool_)
        actions = self._codec.actions.native(self._codec.actions.sample(self._random, self._count or 1, allowed))
        return actions[0] if self._count is None else actions

    def _check_observation(self, seen: Any, method: str, *, is_first: bool) -> None:
        if not self._is_outermost:
            return
        returned = f"{self._flag}: its {method} returned an observation"
        misfit = f"{returned} that does not fit its space {self._environment.observation_space}"
        for path, part in leaves(self._environment.observation_space):
            shown = within(seen, path)
            if not isinstance(part, Box):
                if not _is_of(part, shown):
                    raise SettingsError(f"{misfit}: {shown!r} is not in {part}; {REMEDY}")
                continue
            values = np.asarray(shown)
            try:
                kept = fitted(values, part.shape, kept_type(part))
            except ValueError as error:
                raise SettingsError(f"{misfit}: {error}; {REMEDY}") from error
            if is_first and kept.dtype != np.uint8 and (bad := first_unsound(kept, MOST_OBSERVATION)):
                raise SettingsError(f"{returned} with {bad.what} in it: {seen!r}")
            values = values.reshape(part.shape).astype(np.result_type(kept, part.dtype))
            beyond = values[(values < part.low) | (values > part.high)]
            if len(beyond) and not self._has_warned:
                self._has_warned = True
                # A warning in the form of Gymnasium's own.
                warnings.warn(f"WARN: {returned} with {beyond[0]:g} in it, beyond the bounds of {part}", stacklevel=2)

    def _check_reward(self, reward: Any, *, is_first: bool) -> None:
        if not self._is_outermost:
            return
        rewards = np.asarray(reward)
        is_number = rewards.dtype.kind in "buif" and rewards.size == (self._count or 1)
        returned = f"{self._flag}: its step() returned the reward"
        if not is_number:
            raise SettingsError(f"{returned} {reward!r}, which is no number{self._for_each()}")
        if is_first and (bad := first_unsound(np.atleast_1d(rewards).astype(np.float32), MOST_REWARD)):
            raise SettingsError(f"{returned} {bad.what}")

    def _check_flags(self, name: str, flags: Any) -> bool:
        """Whether one is set."""
        values = np.asarray(flags)
        if values.size != (self._count or 1) or values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
            raise SettingsError(
                f"{self._flag}: its step() returned {flags!r} as {name}, which is neither True nor "
                f"False{self._for_each()}"
            )
        return bool(values.any())

    def _for_each(self) -> str:
        return "" if self._count is None else f" for each of {self._count} environments"


def play(environments: Environments, *, most_steps: int) -> None:
    """As in training, but at random: until a game ends or time is up."""
    end = time.monotonic() + MOST_SECONDS
    for stepped in islice(random_play(environments, seed=SEED), most_steps):
        if stepped.terminated.any() or stepped.truncated.any() or time.monotonic() > end:
            return


def _is_of(part: Space[Any], shown: Any) -> bool:
    """The space holds what is shown, at least as an array: a tensor, a list, flags, one number in an axis."""
    if part.contains(shown):
        return True
    values = np.asarray(shown)
    if values.dtype == np.bool_:
        values = values.astype(np.int64)
    if part.shape is not None and values.size == np.prod(part.shape):
        values = values.reshape(part.shape)
    return part.contains(values)


def _results(returned: Any, count: int, needed: str) -> tuple[Any, ...]:
    if not isinstance(returned, tuple):
        raise SettingsError(f"{needed}, not {type(returned).__name__}")
    if len(returned) != count:
        raise SettingsError(f"{needed}, not {len(returned)} values")
    if not isinstance(returned[-1], dict):
        raise SettingsError(f"{needed}, where info is a dict, not {type(returned[-1]).__name__}")
    return returned
