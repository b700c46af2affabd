"""
ViZDoom's scenarios, by the ids that its Gymnasium wrapper registers: gray frames of 160x120.

Time limits are enforced here and not by ViZDoom. When ViZDoom ends a game it has no frame left, and the wrapper returns
a black one; with a limit of our own the game could go on, so the last frame is real. ViZDoom runs each game in a child
process.
"""

import math
import os
from contextlib import chdir
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.ids import action_table, spec_of
from rl_agent.environments.interface import Screen, Stepped, closed_if_refused, seed_or_any
from rl_agent.environments.preprocessing import FrameStack, described, scheme_for
from rl_agent.environments.process_guard import guard_children
from rl_agent.environments.spaces import Actions, ActionSpace, DiscreteActions, Observations, ObservationSpace
from rl_agent.environments.step_loop import StepLoop
from rl_agent.native_observations import fitted

TICS_PER_SECOND = 35
RESOLUTION = "RES_160X120"
SCREEN_RESOLUTION = "RES_320X240"  # of the rendered twin


class DoomEnvironments:
    """B games of one scenario."""

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        scheme = scheme_for(settings)
        self._stack = FrameStack(scheme, settings.frame_stack)
        self._loop = _games(settings, count, RESOLUTION, "GRAY8")
        # The agent's frames are small and gray. A twin with the same seed and actions renders the same game in colour.
        self._twin = _games(settings, 1, SCREEN_RESOLUTION, "RGB24") if with_screen else None
        first = self._loop.games[0][0]
        self.count = count
        actions = first.action_space
        with closed_if_refused(self):
            if not isinstance(actions, Discrete):
                raise SettingsError(
                    f"--environment {settings.id}: its action space is {actions}; only Discrete is supported"
                )
            table = action_table(settings, int(actions.n))
        self.steps_per_second = TICS_PER_SECOND / settings.frame_skip
        self.observations = ObservationSpace(self._stack.shape, self._stack.dtype, frames=settings.frame_stack)
        names = tuple(_pressed(first.unwrapped, action) for action in table)
        self.actions: ActionSpace = DiscreteActions(len(table), names, table)
        limit = first.spec.max_episode_steps if first.spec else None
        self.description: dict[str, Any] = {
            "scenario": settings.id,
            "observation": described(scheme, settings.frame_stack),
            "actions": ", ".join(names),
            "frame skip": f"{settings.frame_skip} tics",
            "time limit": limit or "none",
        }

    def reset(self, seed: int | None) -> Observations:
        seed = seed_or_any(seed)  # the twin has the same
        # The first reset starts the games. ViZDoom writes into its working folder and exits if it cannot.
        with TemporaryDirectory(prefix="ps-rl-doom-", ignore_cleanup_errors=True) as folder, chdir(folder):
            frames = self._loop.reset(seed)
            self._screens = frames if self._twin is None else self._twin.reset(seed)
        return self._stack.reset(frames)

    def step(self, actions: Actions) -> Stepped:
        stepped = self._loop.step(self.actions.native(actions))
        self._screens = stepped.observations
        if self._twin is not None:
            shown = self._twin.step(self.actions.native(actions[:1]))
            assert shown.rewards[0] == stepped.rewards[0], "the rendered twin has diverged from the game"
            self._screens = shown.observations
        ended = stepped.ended
        observations, final = self._stack.step(stepped.observations, ended, stepped.final_observations)
        return replace(stepped, observations=observations, final_observations=final)

    def screen(self) -> Screen:
        screen: Screen = self._screens[0]
        return screen

    def close(self) -> None:
        self._loop.close()
        if self._twin is not None:
            self._twin.close()


def make(settings: Environment, count: int, *, threads: int, with_screen: bool) -> DoomEnvironments:
    """As families.py says; each game has a process of its own, and no threads."""
    guard_children()
    return DoomEnvironments(settings, count, with_screen)


def _games(settings: Environment, count: int, resolution: str, screen_format: str) -> StepLoop:
    """Games whose observation is the screen."""
    made = [_game(settings, resolution, screen_format) for _ in range(count)]
    game = made[0].get_wrapper_attr("game")
    shape = (game.get_screen_height(), game.get_screen_width(), *((3,) if screen_format == "RGB24" else ()))

    def screen(observation: Any, info: Any, *, is_last: bool = False) -> NDArray[np.uint8]:
        return fitted(observation["screen"], shape, np.dtype(np.uint8))

    space = ObservationSpace(shape, np.dtype(np.uint8))
    return StepLoop([(environment, screen) for environment in made], space, name=settings.id)


def _game(settings: Environment, resolution: str, screen_format: str) -> gymnasium.Env[Any, Any]:
    """One game; TimeLimit truncates it where ViZDoom would time out."""
    environment = gymnasium.make(
        spec_of(settings.id),
        disable_env_checker=True,  # the checker warns about the wrapper's observations
        frame_skip=settings.frame_skip,
        screen_resolution=resolution,
        screen_format=screen_format,
        doom_config_path=os.devnull,  # otherwise ViZDoom writes _vizdoom.ini into the working directory
    )
    game = environment.get_wrapper_attr("game")
    limit = settings.max_episode_steps or math.ceil(game.get_episode_timeout() / settings.frame_skip)
    game.set_episode_timeout(0)
    return TimeLimit(environment, limit) if limit else environment


def _pressed(game: Any, action: int) -> str:
    """The buttons of an action, by ViZDoom's names."""
    pairs = zip(game.game.get_available_buttons(), game.button_map[action], strict=True)
    return "+".join(button.name for button, down in pairs if down) or "none"
