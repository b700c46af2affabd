"""
Custom environments and wrappers, by import path: what they must be, and B of them in lockstep.

`--environment my_pkg:make_env` names a function or class. Without a parameter `num_envs` it is called for each
environment, and Gymnasium's usual checks are put around what it returns; with one it is called once, and returns a
vector environment, which is stepped as it is.
"""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Space, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.kinds import text_of
from ps_common.settings.run_spec import Environment
from rl_agent.environments.failures import FailureCount, NumberCheck
from rl_agent.environments.forgiving import FAILURES
from rl_agent.environments.gymnasium_spaces import MASK, ActionCodec, ObservationReader
from rl_agent.environments.imports import custom_part, taking
from rl_agent.environments.interface import DEFAULT_STEPS_PER_SECOND, Screen, Stepped, closed_if_refused, seed_or_any
from rl_agent.environments.process_guard import guard_children
from rl_agent.environments.spaces import Actions, Observations, ObservationSpace
from rl_agent.games import MetricsReader, info_of_row

NEEDED = "an environment is a function or class that returns a gymnasium.Env, or, called with num_envs, a VectorEnv"
WRAPPER_NEEDED = "a wrapper takes a gymnasium.Env (or, around a vector environment, a VectorEnv) and returns another"
SAME_STEP = "it must have autoreset_mode SAME_STEP in its metadata: a game that ends is reset in the same step"


def makes_vectors(path: str) -> bool:
    """Whether what is at this import path makes vector environments. Raises SettingsError."""
    try:
        return "num_envs" in inspect.signature(_maker(path)).parameters
    except ValueError:  # written in C: it says nothing of its parameters
        return False


def custom_spec(path: str) -> EnvSpec:
    """The Gymnasium spec whose entry point calls the function or class at this import path. Raises SettingsError."""
    make = _maker(path)

    @functools.wraps(make, updated=())
    def checked(**arguments: Any) -> gymnasium.Env[Any, Any]:
        made: gymnasium.Env[Any, Any] = _checked(
            make(**arguments), gymnasium.Env, flag=f"--environment {path}", needed=NEEDED
        )
        return made

    if hasattr(make, "metadata"):  # of a class, which says what it can render
        checked.metadata = make.metadata  # type: ignore[attr-defined]
    return EnvSpec(id=path, entry_point=checked)


def made_vectors(settings: Environment, count: int, **screen: str) -> Any:
    """The vector environment of `count` that is made at the settings' import path. Raises SettingsError."""
    guard_children()
    flag, make = f"--environment {settings.id}", _maker(settings.id)
    with taking(settings.kwargs, flag="--environment-kwargs"):
        made = _checked(make(num_envs=count, **screen, **settings.kwargs), VectorEnv, flag=flag, needed=NEEDED)
    with closed_if_refused(made):
        if made.num_envs != count:
            raise SettingsError(f"{flag}: returned {made.num_envs} environments for num_envs={count}")
    return made


def wrapped(environment: Any, paths: Sequence[str], *, kind: type = gymnasium.Env) -> Any:
    """The environment, of this kind, in the wrappers at these import paths. Raises SettingsError."""
    for path in paths:
        wrap = custom_part(path, flag="--wrapper", kind=WRAPPER_NEEDED)
        environment = _checked(wrap(environment), kind, flag=f"--wrapper {path}", needed=WRAPPER_NEEDED)
    return environment


def in_colour(rendered: Any) -> Screen:
    """A rendered frame, which may be gray, or floats in [0, 1] as MinAtar's are."""
    frame = np.asarray(rendered)
    frame = (frame * 255 if frame.dtype.kind == "f" else frame).astype(np.uint8)
    return np.stack([frame] * 3, axis=-1) if frame.ndim == 2 else frame


def described(settings: Environment, observations: ObservationSpace, actions: Space[Any]) -> dict[str, Any]:
    """How the games are seen and played, for display and receipts."""
    return {
        "environment": settings.id,
        **({"arguments": text_of(settings.kwargs)} if settings.kwargs else {}),
        **({"wrappers": ", ".join(settings.wrapper)} if settings.wrapper else {}),
        "observation": str(observations),
        "actions": f"{actions}, of these {list(settings.actions)}" if settings.actions else str(actions),
    }


class VectorEnvironments:
    """A vector environment: `made` where it is given, else that of the settings. A given one cannot be drawn."""

    def __init__(
        self,
        settings: Environment,
        count: int,
        with_screen: bool,
        made: Any = None,
        *,
        failures: FailureCount | None = None,
    ) -> None:
        """`failures` counts failed games; None: a failure is an error."""
        flag = f"--environment {settings.id}"
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; remove it")
        if made is None and settings.max_episode_steps:
            raise SettingsError(f"--max-episode-steps: {settings.id}, a vector environment, ends its games itself")
        screen = {"render_mode": "rgb_array"} if with_screen else {}
        self.count = count
        self._failures = failures
        self._metrics = MetricsReader()
        self._ignores_masks = settings.action_mask == "none"
        masks: Literal["none", "key"] = "none" if self._ignores_masks else "key"
        self._env: Any = made_vectors(settings, count, **screen) if made is None else made
        with closed_if_refused(self):
            if made is None:  # a given vector environment has its wrappers
                self._env = wrapped(self._env, settings.wrapper, kind=VectorEnv)
            mode = self._env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
            if AutoresetMode(mode) != AutoresetMode.SAME_STEP:
                raise SettingsError(f"{flag}: {SAME_STEP}")
            self._codec = ActionCodec(settings, self._env.single_action_space)
            self._reader = ObservationReader(self._env.single_observation_space, self._codec, masks=masks)
        self.observations, self.actions = self._reader.array_space, self._codec.actions
        self._numbers = NumberCheck(settings.id, self.observations, failures)
        self.steps_per_second = float(self._env.metadata.get("render_fps") or DEFAULT_STEPS_PER_SECOND)
        self.description = described(settings, self.observations, self._env.single_action_space)

    def reset(self, seed: int | None) -> Observations:
        seen, info = self._env.reset(seed=seed_or_any(seed))
        if MASK in info and self.observations.mask is None and not self._ignores_masks:
            raise SettingsError(
                f"--environment {self.description['environment']}: this vector environment gives masks in `info`, "
                f"where only those of single environments are read; put {MASK} into its Dict observation, or ignore "
                "the masks with --action-mask none"
            )
        return self._numbers.first(self._reader.arrays(self._env.observation_space, seen))

    def step(self, actions: Actions) -> Stepped:
        seen, rewards, terminated, truncated, info = self._env.step(self.actions.native(actions))
        # `astype` copies: the environment may write the next step into the same arrays.
        rewards = np.asarray(rewards).reshape(self.count).astype(np.float32)
        terminated = np.asarray(terminated).reshape(self.count).astype(np.bool_)
        truncated = np.asarray(truncated).reshape(self.count).astype(np.bool_)
        metrics = self._metrics.read_rows(info.get("final_info"), np.flatnonzero(terminated | truncated))
        observations, final = self._reader.arrays(self._env.observation_space, seen), None
        last, ended = info.get("final_obs", [None] * self.count), np.flatnonzero(terminated | truncated)
        if len(ended) and _is_batch(last, self._env.single_observation_space):
            final, ended = self._reader.arrays(self._env.observation_space, last), ended[:0]
        for row in ended:
            final = observations.copy() if final is None else final
            if last[row] is not None:
                final[row] = self._reader.array(last[row], {})
            elif truncated[row]:
                raise SettingsError(
                    f"--environment {self.description['environment']}: a game was truncated, and its last observation "
                    "is missing in info['final_obs'] (one for each environment, None where no game ended)"
                )
        failed = self._note_failures(info, np.flatnonzero(terminated | truncated))
        stepped = Stepped(observations, rewards, terminated, truncated, final, failed=failed, metrics=metrics)
        return self._numbers.step(stepped)

    def _note_failures(self, info: Mapping[str, Any], ended: NDArray[np.intp]) -> NDArray[np.bool_] | None:
        """Count the failures that the infos report. Returns which games a failure cut off; None: no game."""
        if self._failures is None:
            return None
        self._failures.ended(len(ended))
        failed = np.zeros(self.count, np.bool_)
        for row in ended:
            for stacked in (info.get("final_info", {}), info):
                sentences = info_of_row(stacked, int(row)).get(FAILURES) or ()
                failed[row] |= stacked is not info and bool(sentences)
                for sentence in sentences:
                    self._failures.failed(int(row), sentence)
        return failed if failed.any() else None

    def screen(self) -> Screen:
        frames = self._env.render()
        assert frames is not None, "this vector environment renders no rgb_array"
        return in_colour(frames[0])

    def close(self) -> None:
        self._env.close()


def _is_batch(last: Any, space: Space[Any]) -> bool:
    """Whether the last observations are one batch of all environments; the other form is a list of one for each."""
    if isinstance(last, np.ndarray):
        return bool(last.dtype != np.object_)
    return isinstance(last, Mapping) or (isinstance(last, tuple) and isinstance(space, Tuple))


def _maker(path: str) -> Any:
    module, _, name = path.rpartition(":")
    of_id = f"an id that {module} registers has its version here, as in {module}:{name}-v0"
    return custom_part(path, flag="--environment", kind=f"{NEEDED}; {of_id}")


def _checked(made: Any, kind: type, *, flag: str, needed: str) -> Any:
    if not isinstance(made, kind):
        raise SettingsError(f"{flag}: returned {type(made).__name__}, not {kind.__name__}; {needed}")
    return made
