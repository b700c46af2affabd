"""
Any registered Gymnasium id, or a custom environment: copies in one process.

gymnasium_spaces.py makes one array of each observation, and the environment's actions of the agent's. step_loop.py
steps them one after another. For --step-in processes each has a process, in Gymnasium's AsyncVectorEnv.
"""

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from ps_common.errors import SettingsError
from ps_common.protocol.names import is_import_path
from ps_common.settings.run_spec import Environment
from rl_agent.environments.custom_environment import custom_spec, described, in_colour, wrapped
from rl_agent.environments.failures import FailureCount
from rl_agent.environments.forgiving import Forgiving
from rl_agent.environments.gymnasium_spaces import ActionCodec, ObservationReader, shows_masks
from rl_agent.environments.ids import not_installed, spec_of
from rl_agent.environments.imports import taking
from rl_agent.environments.interface import DEFAULT_STEPS_PER_SECOND, Screen, Stepped, close_logged, closed_if_refused
from rl_agent.environments.process_guard import guard_children
from rl_agent.environments.spaces import Actions, Observations
from rl_agent.environments.step_loop import StepLoop
from rl_agent.games import METRICS

WITHOUT_CHILDREN = ("gymnasium.", "minatar.")  # entry points of environments that start no processes
TRUE_RETURN = "true_return"  # a metric of each game, below wrappers
SMALLEST_SCREEN = 200  # rows; smaller screens, such as MinAtar's 10, are enlarged


class _Game(NamedTuple):
    environment: gymnasium.Env[Any, Any]
    codec: ActionCodec
    reader: ObservationReader


class GymnasiumEnvironments:
    """B environments of one id, in this process."""

    def __init__(self, settings: Environment, count: int, with_screen: bool, failures: FailureCount | None) -> None:
        """`failures` counts failed games, after which another environment is made; None: a failure is an error."""
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; remove it")
        games = _games(settings, count, with_screen, forgives=failures is not None)
        self._first, self._codec, reader = games[0]
        self.count = count
        self.actions, self.observations = self._codec.actions, reader.array_space
        read = [(game.environment, game.reader.array) for game in games]
        self._loop = StepLoop(
            read,
            self.observations,
            name=settings.id,
            failures=failures,
            in_threads=settings.step_in == "threads" and count > 1,
        )
        self.steps_per_second = float(self._first.metadata.get("render_fps") or DEFAULT_STEPS_PER_SECOND)
        self.description = described(settings, self.observations, self._first.action_space)
        self.description["time limit"] = self._first.spec.max_episode_steps if self._first.spec else None

    def reset(self, seed: int | None) -> Observations:
        return self._loop.reset(seed)

    def step(self, actions: Actions) -> Stepped:
        return self._loop.step(self.actions.native(actions))

    def screen(self) -> Screen:
        first = self._first
        if first.render_mode is None and "rgb_array" in first.metadata.get("render_modes", ()):
            # Environments read it when they render. Made with it, some would prepare what nobody may ever look at.
            first.unwrapped.render_mode = "rgb_array"
        rendered = first.render()
        assert rendered is not None, "this environment renders no rgb_array"
        screen = in_colour(rendered)
        larger = max(1, SMALLEST_SCREEN // len(screen))
        return screen.repeat(larger, axis=0).repeat(larger, axis=1)

    def close(self) -> None:
        self._loop.close()


def made_environment(settings: Environment, *, with_screen: bool = False) -> gymnasium.Env[Any, Any]:
    """One environment of the id, without the wrappers of the settings. Raises SettingsError."""
    spec = custom_spec(settings.id) if is_import_path(settings.id) else spec_of(settings.id)
    if not str(spec.entry_point).startswith(WITHOUT_CHILDREN):
        guard_children()
    # Some environments accept no render_mode argument, so it is passed only when a screen is needed.
    screen: dict[str, Any] = {"render_mode": "rgb_array"} if with_screen else {}
    try:
        with taking(settings.kwargs, flag="--environment-kwargs"):
            spec = dataclasses.replace(spec, kwargs=spec.kwargs | settings.kwargs)
            return gymnasium.make(spec, max_episode_steps=settings.max_episode_steps or None, **screen)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise not_installed(settings.id, str(spec.entry_point), error) from error
    except gymnasium.error.Error as error:
        raise SettingsError(f"--environment {settings.id}: {error}") from error
    except TypeError as error:
        if not with_screen or "render_mode" not in str(error):
            raise
        raise SettingsError(f"--environment {settings.id}: cannot render (render_mode): {error}") from error


def wrapped_environment(settings: Environment, *, with_screen: bool = False) -> gymnasium.Env[Any, Any]:
    """One environment of the id, with the wrappers of the settings. Raises SettingsError."""
    made = made_environment(settings, with_screen=with_screen)
    with closed_if_refused(made):
        environment: gymnasium.Env[Any, Any] = wrapped(TrueReturn(made), settings.wrapper) if settings.wrapper else made
    return environment


def in_processes(settings: Environment, count: int, with_screen: bool, *, forgives: bool) -> AsyncVectorEnv:
    """A vector environment of `count`. `forgives`: where one raises an exception its process makes another."""
    make = partial(_in_its_process, settings, with_screen, forgives, tuple(sys.path))
    return AsyncVectorEnv(
        [make] * count, shared_memory=True, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP
    )


def _in_its_process(
    settings: Environment, with_screen: bool, forgives: bool, path: Sequence[str]
) -> gymnasium.Env[Any, Any]:
    """The environment, for which this process imports the user's module."""
    sys.path[:] = path
    make = partial(wrapped_environment, settings, with_screen=with_screen)
    return Forgiving(make) if forgives else make()


class TrueReturn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """
    The true score below wrappers: the sum of the environment's own rewards, whatever `--wrapper` makes of them.

    It stands in each info, since an outer wrapper may end the game.
    """

    _sum = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._sum = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        self._sum += float(np.asarray(reward, np.float64).sum())
        given = info.get(METRICS)
        metrics = {**given, TRUE_RETURN: self._sum} if isinstance(given, dict) else {TRUE_RETURN: self._sum}
        return seen, reward, terminated, truncated, {**info, METRICS: metrics}


def _games(settings: Environment, count: int, with_screen: bool, *, forgives: bool) -> list[_Game]:
    """`count` environments that are alike. Raises SettingsError; those that were made are closed then."""
    games: list[_Game] = []
    masks: Literal["none", "key", "info"] = "none"
    with ExitStack() as opened:
        for _ in range(count):
            make = partial(wrapped_environment, settings, with_screen=with_screen)
            environment = Forgiving(make) if forgives else make()
            opened.callback(close_logged, environment)
            codec = ActionCodec(settings, environment.action_space)
            if not games and settings.action_mask == "auto":
                masks = "info" if shows_masks(environment) else "key"  # asked once, since it takes a reset
            games.append(
                _Game(environment, codec, ObservationReader(environment.observation_space, codec, masks=masks))
            )
            _check_alike(settings, games[0], games[-1])
        opened.pop_all()
    return games


def _check_alike(settings: Environment, first: _Game, other: _Game) -> None:
    """Raises SettingsError if one network cannot play both."""
    for what, one, another in (
        ("observations", first.reader.array_space, other.reader.array_space),
        ("actions", first.environment.action_space, other.environment.action_space),
    ):
        if one != another:
            raise SettingsError(
                f"--environment {settings.id}: of two environments one has the {what} {one}, the other {another}; "
                "one network plays all environments of a run, so make them alike"
            )
