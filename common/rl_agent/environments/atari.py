"""
ALE games in ALE's own vector environment: emulation, frame skip and max-pooling run in C++, outside the interpreter.

With ALE's own preprocessing schemes resizing and stacking run there too. Other schemes receive whole frames and stack
them in numpy.
"""

from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ps_common.settings.run_spec import Environment
from rl_agent.environments.ids import action_table, spec_of
from rl_agent.environments.interface import Screen, Stepped, closed_if_refused, seed_or_any
from rl_agent.environments.preprocessing import ALE_FRAME, FrameStack, described, scheme_for
from rl_agent.environments.spaces import Actions, ActionSpace, DiscreteActions, Observations, ObservationSpace

FRAMES_PER_SECOND = 60
ALE_FRAME_LIMIT = 108_000  # half an hour of play, as in the literature
WHOLE_FRAMES: dict[str, Any] = {"img_height": ALE_FRAME[0], "img_width": ALE_FRAME[1], "stack_num": 1}
IN_COLOUR: dict[str, Any] = WHOLE_FRAMES | {"grayscale": False}


class AtariEnvironments:
    """B games of one ROM."""

    def __init__(self, settings: Environment, count: int, threads: int, with_screen: bool) -> None:
        game = spec_of(settings.id).kwargs["game"]
        scheme = scheme_for(settings)
        arguments = vector_arguments(settings)
        self._twin: AtariVectorEnv | None = None
        self._stack = FrameStack(scheme, settings.frame_stack) if scheme.function else None
        self._env = AtariVectorEnv(game, num_envs=count, num_threads=threads, **arguments)
        # These environments may render only gray frames. A twin of the first game, with the same seed and actions,
        # plays the same game in full size and colour.
        if with_screen and (self._stack is None or scheme.gray):
            self._twin = AtariVectorEnv(game, num_envs=1, num_threads=1, **(arguments | IN_COLOUR))
        self.count = count
        joystick = self._env.ale.get_action_set()
        with closed_if_refused(self):
            table = action_table(settings, len(joystick))
        names = tuple(joystick[action].name for action in table)
        self.actions: ActionSpace = DiscreteActions(len(table), names, table)
        shape = self._stack.shape if self._stack else (settings.frame_stack, *scheme.shape)
        self.observations = ObservationSpace(shape, np.dtype(scheme.dtype), frames=settings.frame_stack)
        self.steps_per_second = FRAMES_PER_SECOND / settings.frame_skip
        self._counts_lives = settings.life_loss_ends_episode
        self._reward_ends_return = settings.reward_ends_episode
        self._lives = np.zeros(count, dtype=np.int64)
        # For a seed ALE loads the ROM again, which takes 66 ms a game. Without one it draws no-ops from the operating
        # system, and sticky actions from the clock: those of games that begin in one second would be the same.
        self._needs_seeds = settings.sticky_actions > 0 or self._twin is not None
        self.description = _description(settings, described(scheme, settings.frame_stack), table, arguments)

    def reset(self, seed: int | None) -> Observations:
        if seed is None and self._needs_seeds:
            seed, self._needs_seeds = seed_or_any(seed), self._twin is not None
        observations, info = self._env.reset(seed=seed)
        assert isinstance(observations, np.ndarray)
        self._lives = info["lives"]
        self._screens = observations if self._twin is None else self._twin.reset(seed=seed)[0]
        return observations if self._stack is None else self._stack.reset(observations[:, 0])

    def step(self, actions: Actions) -> Stepped:
        observations, rewards, terminated, truncated, info = self._env.step(self.actions.native(actions))
        self._screens = observations
        if self._twin is not None:
            self._screens, twin_rewards, *_ = self._twin.step(self.actions.native(actions[:1]))
            assert twin_rewards[0] == rewards[0], "the rendered twin has diverged from the game"
        ended = terminated | truncated
        return_ended = None
        if self._counts_lives:
            return_ended = (info["lives"] < self._lives) & ~ended
            self._lives = info["lives"]
        if self._reward_ends_return:
            scored = (rewards != 0) & ~ended
            return_ended = scored if return_ended is None else return_ended | scored
        final = info.get("final_obs")
        if self._stack is not None:
            last = None if final is None else final[:, 0]
            observations, final = self._stack.step(observations[:, 0], ended, last)
        return Stepped(observations, rewards.astype(np.float32), terminated, truncated, final, return_ended)

    def screen(self) -> Screen:
        screen: Screen = self._screens[0, -1]
        return screen

    def close(self) -> None:
        self._env.close()
        if self._twin is not None:
            self._twin.close()


def make(settings: Environment, count: int, *, threads: int, with_screen: bool) -> AtariEnvironments:
    """As families.py says."""
    return AtariEnvironments(settings, count, threads, with_screen)


def _description(
    settings: Environment, observation: str, table: NDArray[np.int64], arguments: dict[str, Any]
) -> dict[str, Any]:
    """How the game is played and seen, for display and receipts."""
    return {
        "game": spec_of(settings.id).kwargs["game"],
        "observation": observation,
        "actions": table.tolist(),
        "frame skip": settings.frame_skip,
        "sticky actions": settings.sticky_actions,
        "no-op starts": f"up to {settings.noop_max}",
        "fire on reset": settings.fire_on_reset,
        "life loss ends episode": settings.life_loss_ends_episode,
        "reward ends episode": settings.reward_ends_episode,
        "time limit": f"{arguments['max_num_frames_per_episode']} frames",
    }


def vector_arguments(settings: Environment) -> dict[str, Any]:
    """The arguments of AtariVectorEnv, but for the game and the numbers of games and of threads."""
    steps, scheme = settings.max_episode_steps, scheme_for(settings)
    observed = WHOLE_FRAMES | {"grayscale": scheme.gray}
    if scheme.function is None:
        height, width = scheme.shape
        observed = {"img_height": height, "img_width": width, "stack_num": settings.frame_stack, "grayscale": True}
    return {
        **observed,
        "maxpool": True,  # each pixel is its maximum of a step's last two frames
        "max_num_frames_per_episode": min(steps * settings.frame_skip, 2**31 - 1) if steps else ALE_FRAME_LIMIT,
        "repeat_action_probability": settings.sticky_actions,
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "frameskip": settings.frame_skip,
        "noop_max": settings.noop_max,
        "use_fire_reset": settings.fire_on_reset,
        "reward_clipping": False,  # reported scores are true; the learner clips its own copy
    }
