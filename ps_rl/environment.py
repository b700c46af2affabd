"""
`make_env`: the environment of a run as Gymnasium has it, with the preprocessing of the run.

The environments that workers and rl-eval step are made, and one of two adapters is put around them: for one game a
gymnasium.Env, for several a VectorEnv. They show what a policy of the run sees, and take what its `act` returns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.run_folder.paths import records_folder
from ps_common.run_folder.trained import trained_in
from ps_common.settings.run_files import SETTINGS, load_config, presets
from ps_common.settings.run_settings import with_keywords
from ps_common.settings.run_spec import RunSpec
from ps_rl.run import Run
from ps_rl.training import modules_in, parts_by_name, spec_of
from rl_agent.environments.imports import import_modules
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments
from rl_agent.environments.process_guard import leave_children_alone
from rl_agent.environments.spaces import (
    ActionSpace,
    DiscreteActions,
    MultiDiscreteActions,
    Observations,
    ObservationSpace,
)
from rl_agent.games import info_of_row
from rl_eval.policy import Policy

LARGEST_SEED = 2**30  # drawn where none is given
MASK = "action_mask"


def make_env(
    source: Run | Policy | str | Path | None = None,
    *,
    count: int | None = None,
    render_mode: str | None = None,
    imports: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """
    The environment of a run, of a policy, or of a preset by its name, as its workers play it; a path is that of a run
    folder, a checkpoint or an exported policy, as `load_policy` takes it. It is a `gymnasium.Env`; with
    `count` a `gymnasium.vector.VectorEnv` of so many, in autoreset mode SAME_STEP, environment k seeded with seed + k.

        env = make_env("pong-a3c")
        env = make_env("runs/pong-a3c-20260101-120000")
        env = make_env(policy, count=8, sticky_actions=0.25)
        env = make_env(environment=Rooms, environment_kwargs={"size": 5})

    `settings` are keywords of `train`; beside a run, a policy or a preset they change its settings. `imports` names
    modules of custom parts that may be imported, beside those that the keywords name.

    An observation is what the policy sees, after the preprocessing, and `policy.act` takes it: an array, or a tuple of
    the parts (all numbers as one vector, images with their channels first, the action mask). Where there is a mask,
    `info["action_mask"]` has it by the numbers of the game, as `action_space.sample` takes it where an action is one
    choice. Actions are those of the game, which `policy.act` returns, and of these only the ones that the run uses.
    Real actions beyond their bounds are clipped. Rewards are those of the game, unclipped; a lost life ends no game.

    `render_mode="rgb_array"` draws one environment. Raises SettingsError, and PsRlError for a step with NaN.
    """
    if render_mode not in (None, "rgb_array") or (render_mode and count is not None):
        raise SettingsError(
            f"make_env: render_mode={render_mode!r}: must be 'rgb_array', and belongs to one environment"
        )
    run = run_of(source, settings, imports)
    leave_children_alone()
    environments = make_environments(run.environment, count=count or 1, with_screen=render_mode is not None)
    many = ManyEnvironments(environments)
    return OneEnvironment(many, render_mode) if count is None else many


def run_of(source: Run | Policy | str | Path | None, settings: dict[str, Any], imports: Sequence[str]) -> RunSpec:
    """The run, whose modules are imported. Raises SettingsError, also for a module that nobody named."""
    objects = dict(source.objects) if isinstance(source, Run | Policy) else {}  # which have their names here again
    settings = parts_by_name(settings, objects)
    modules, origin = modules_in(settings | {"imports": imports}), "make_env"
    if isinstance(source, Run):
        run, origin = load_config(records_folder(source.folder) / SETTINGS), str(source.folder)
        modules = (*modules, *source.modules)
    elif isinstance(source, Policy):
        run, origin = source.run, repr(source)
    elif source is not None and source not in presets() and Path(source).exists():
        run, origin = _run_at(Path(source)), str(source)
    else:
        run, settings = spec_of(settings | ({"preset": str(source)} if source else {}), source=origin), {}
    run, _ = with_keywords(run, settings, source="make_env")
    import_modules(modules, run.environment, source=origin)
    return run


def _run_at(place: Path) -> RunSpec:
    """The run of a run folder, which may have no checkpoint yet, of a checkpoint, or of an exported policy."""
    settings = records_folder(place) / SETTINGS
    return load_config(settings) if settings.is_file() else trained_in(place, flag="make_env").run


class OneEnvironment(gymnasium.Env[Any, Any]):
    """The only one of a vector environment. The step that ends a game begins the next one, which `reset` then shows."""

    def __init__(self, many: "ManyEnvironments", render_mode: str | None) -> None:
        self.observation_space, self.action_space = many.single_observation_space, many.single_action_space
        self.metadata, self.render_mode = many.metadata | {"render_modes": ["rgb_array"]}, render_mode
        self._many = many
        self._begun: tuple[Any, dict[str, Any]] | None = None  # the game that a step has begun

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        begun, self._begun = self._begun, None
        if begun is None or seed is not None:
            seen, info = self._many.reset(seed=int(self.np_random.integers(LARGEST_SEED)) if seed is None else seed)
            begun = _row(seen, 0), info_of_row(info, 0)
        return begun

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, rewards, terminated, truncated, info = self._many.step(np.asarray(action)[None])
        final, final_info = info.pop("final_obs", None), info.pop("final_info", None)
        one = _row(seen, 0), info_of_row(info, 0)
        if final is not None:
            self._begun, one = one, (final[0], info_of_row(final_info, 0))
        return one[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), one[1]

    def render(self) -> Any:
        return None if self.render_mode is None else self._many.environments.screen()

    def close(self) -> None:
        self._many.close()


class ManyEnvironments(VectorEnv[Any, Any, Any]):
    """B environments in lockstep."""

    def __init__(self, environments: Environments) -> None:
        self.num_envs = environments.count
        self.single_observation_space = _observation_space(environments.observations)
        self.single_action_space = _action_space(environments.actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_fps": environments.steps_per_second}
        self.environments = environments

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if not isinstance(seed, int | None):
            raise ValueError(f"seed {seed}: give one number; environment k is seeded with seed + k")
        super().reset(seed=seed)
        first = self.environments.reset(int(self.np_random.integers(LARGEST_SEED)) if seed is None else seed)
        return self._seen(first), self._info(first)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        stepped = self.environments.step(self.environments.actions.of_native(np.asarray(actions)))
        info, ended = self._info(stepped.observations), stepped.ended
        if stepped.final_observations is not None:
            last, final = self._seen(stepped.final_observations), np.full(self.num_envs, None)
            for row in map(int, np.flatnonzero(ended)):
                final[row] = _row(last, row)
            final_info = self._info(stepped.final_observations)
            for row, metrics in stepped.metrics.items():
                final_info = self._add_info(final_info, {"metrics": dict(metrics)}, row)
            info |= {"final_obs": final, "_final_obs": ended, "final_info": final_info, "_final_info": ended}
        return self._seen(stepped.observations), stepped.rewards, stepped.terminated, stepped.truncated, info

    def close_extras(self, **_: Any) -> None:
        self.environments.close()

    def _seen(self, observations: Observations) -> Any:
        """[B, ...], or a tuple of so many; copies, since environments may write the next ones into the same memory."""
        parts = self.environments.observations.parts
        return tuple(part.of(observations).copy() for part in parts) if parts else observations.copy()

    def _info(self, observations: Observations) -> dict[str, Any]:
        """The masks, if there are any, by the numbers of the game."""
        if (part := self.environments.observations.mask) is None:
            return {}
        masks = part.of(observations).astype(np.int8)
        if isinstance(self.single_action_space, SomeActions):
            of_agent, masks = masks, np.zeros((self.num_envs, len(self.single_action_space.used)), np.int8)
            masks[:, self.single_action_space.places] = of_agent
        return {MASK: masks, f"_{MASK}": np.ones(self.num_envs, np.bool_)}


class _Some:
    """Random actions are some of those of the space."""

    used: Any  # a mask

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return super().sample(self.used if mask is None and probability is None else mask, probability)  # type: ignore[misc]


class SomeActions(_Some, spaces.Discrete[Any]):
    """Those actions of a game that a run uses, by the numbers of the game."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        super().__init__(int(np.ptp(numbers)) + 1, start=int(numbers.min()))
        self.places = numbers - self.start  # of the actions of an agent
        self.used = np.isin(np.arange(self.n), self.places).astype(np.int8)

    def contains(self, x: Any) -> bool:
        return super().contains(x) and bool(self.used[int(x) - self.start])

    def __repr__(self) -> str:
        return f"SomeActions({(self.places + self.start).tolist()})"


class SomeActionsOfMany(_Some, spaces.MultiDiscrete[Any]):
    """SomeActions for each of several environments."""

    def __init__(self, one: SomeActions, n: int = 1) -> None:
        super().__init__([int(one.n)] * n, start=[int(one.start)] * n)
        self.used = (one.used,) * n


batch_space.register(SomeActions, SomeActionsOfMany)


def _observation_space(observations: ObservationSpace) -> spaces.Space[Any]:
    def box(dtype: Any, shape: tuple[int, ...]) -> spaces.Box:
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        return spaces.Box(low, high, shape, dtype)

    if not observations.parts:
        return box(observations.dtype, observations.shape)
    return spaces.Tuple([box(part.dtype, part.shape) for part in observations.parts])


def _action_space(actions: ActionSpace) -> spaces.Space[Any]:
    match actions:
        case DiscreteActions(count=count):
            numbers = np.arange(count) if actions.numbers is None else actions.numbers
            is_whole = np.array_equal(numbers, np.arange(count) + numbers[0])
            return spaces.Discrete(count, start=int(numbers[0])) if is_whole else SomeActions(numbers)
        case MultiDiscreteActions():
            first = actions.native(np.zeros((1, len(actions.counts)), np.int64))[0]
            counts = np.reshape(actions.counts, first.shape)
            return spaces.MultiDiscrete(counts, dtype=first.dtype, start=first)
    low, high = (ends.reshape(actions.shape or ends.shape) for ends in (actions.low, actions.high))
    return spaces.Box(low, high, dtype=low.dtype)


def _row(seen: Any, row: int) -> Any:
    return tuple(part[row] for part in seen) if isinstance(seen, tuple) else seen[row]
