"""
Environments, many in lockstep, behind one interface: ALE's native vector environment, or any Gymnasium id.

`make_environments` reads the run's [environment] section and returns something with `reset` and `step`. An environment
that ends is reset in the same step (SAME_STEP), so a row of observations can always be acted on.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from common.errors import SettingsError
from common.run_spec import Environment

Observations = NDArray[Any]  # [B, ...] uint8 or float32
Screen = NDArray[np.uint8]  # [height, width, 3] RGB
IMAGE_SIZES = {"auto": 84, "atari84": 84, "atari42": 42}  # pixels, of ALE frames
ALE_FRAME_LIMIT = 108_000  # half an hour of play, as in the literature

gymnasium.register_envs(ale_py)


@dataclass(frozen=True)
class DiscreteActions:
    """Actions 0 … count − 1."""

    count: int


@dataclass(frozen=True)
class BoxActions:
    """Real vectors; float32 bounds [A], infinite where there are none."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


ActionSpace = DiscreteActions | BoxActions


@dataclass(frozen=True)
class Stepped:
    """What one step of all B environments brought. Arrays are [B] or [B, ...]."""

    observations: Observations  # to act on next; the first of a new episode where one has ended
    rewards: NDArray[np.float32]  # true, unclipped
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_observations: Observations | None  # rows of episodes that ended hold their last one; None when none ended
    life_lost: NDArray[np.bool_] | None = None  # the game goes on; None where lives are not counted


class Environments(Protocol):
    """B environments in lockstep."""

    count: int  # B
    observation_shape: tuple[int, ...]  # of one environment
    observation_dtype: np.dtype[Any]  # uint8 or float32
    actions: ActionSpace
    description: dict[str, Any]  # what is really in effect, for people

    def reset(self, seed: int) -> Observations:
        """Start all anew; environment k gets seed + k."""
        ...

    def step(self, actions: NDArray[Any]) -> Stepped:
        """`actions` is [B] int64, or [B, A] float32 within the bounds or beyond them (then clipped)."""
        ...

    def screen(self) -> Screen:
        """What a person would see of the first environment; made `with_screen` only."""
        ...

    def close(self) -> None: ...


def make_environments(settings: Environment, *, count: int, with_screen: bool = False) -> Environments:
    """Raises SettingsError naming the flag when there is no such environment, or it cannot be learned here."""
    return (_Atari if settings.is_atari else _Gymnasium)(settings, count, with_screen)


class _Atari:
    """ALE's native vector environment: emulation, resizing and stacking in C++, outside the interpreter."""

    observation_dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        game = _spec_of(settings.id).kwargs["game"]
        if settings.preprocessing not in IMAGE_SIZES:
            raise SettingsError(f"--preprocessing {settings.preprocessing}: not for ALE; {', '.join(IMAGE_SIZES)} are")
        size = IMAGE_SIZES[settings.preprocessing]
        steps = settings.max_episode_steps
        common: dict[str, Any] = {
            "num_envs": count,
            "num_threads": 1,  # parallelism comes from worker processes
            "max_num_frames_per_episode": steps * settings.frame_skip if steps else ALE_FRAME_LIMIT,
            "repeat_action_probability": settings.sticky_actions,
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "frameskip": settings.frame_skip,
            "noop_max": settings.noop_max,
            "use_fire_reset": settings.fire_on_reset,
            "reward_clipping": False,  # scores are true; the learner clips for itself
        }
        self._env = AtariVectorEnv(game, img_height=size, img_width=size, stack_num=settings.frame_stack, **common)
        # The vector environment shows only what the agent sees. A twin with the same seed and actions plays the same
        # game in full size and colour.
        self._twin: AtariVectorEnv | None = None
        if with_screen:
            self._twin = AtariVectorEnv(game, img_height=210, img_width=160, stack_num=1, grayscale=False, **common)
        self.count = count
        self._table = _action_table(settings, len(self._env.ale.get_action_set()))
        self.actions: ActionSpace = DiscreteActions(len(self._table))
        self.observation_shape: tuple[int, ...] = (settings.frame_stack, size, size)
        self._counts_lives = settings.life_loss_ends_episode
        self._lives = np.zeros(count, dtype=np.int64)
        self.description = {
            "game": game,
            "observation": f"{settings.frame_stack} gray frames of {size}x{size}",
            "actions": self._table.tolist(),
            "frame skip": settings.frame_skip,
            "sticky actions": settings.sticky_actions,
            "no-op starts": f"up to {settings.noop_max}",
            "fire on reset": settings.fire_on_reset,
            "life loss ends episode": settings.life_loss_ends_episode,
        }

    def reset(self, seed: int) -> Observations:
        observations, info = self._env.reset(seed=seed)
        if self._twin is not None:
            self._screens = self._twin.reset(seed=seed)[0]
        self._lives = info["lives"]
        assert isinstance(observations, np.ndarray)
        return observations

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        observations, rewards, terminated, truncated, info = self._env.step(self._table[actions])
        if self._twin is not None:
            self._screens, twin_rewards, *_ = self._twin.step(self._table[actions])
            assert (twin_rewards == rewards).all(), "the twin that is shown plays another game"
        life_lost = None
        if self._counts_lives:
            life_lost = (info["lives"] < self._lives) & ~(terminated | truncated)
            self._lives = info["lives"]
        return Stepped(
            observations, rewards.astype(np.float32), terminated, truncated, info.get("final_obs"), life_lost
        )

    def screen(self) -> Screen:
        screen: Screen = self._screens[0, -1]
        return screen

    def close(self) -> None:
        self._env.close()
        if self._twin is not None:
            self._twin.close()


class _Gymnasium:
    """Any registered Gymnasium id with Box observations and Discrete actions, stepped one after another."""

    def __init__(self, settings: Environment, count: int, with_screen: bool) -> None:
        if settings.preprocessing not in ("auto", "none"):
            raise SettingsError(f"--preprocessing {settings.preprocessing}: is for ALE games; leave it out")
        spec = _spec_of(settings.id)
        limit = settings.max_episode_steps or None
        # Not every environment takes a render mode: it is only named when it is needed.
        screen: dict[str, Any] = {"render_mode": "rgb_array"} if with_screen else {}
        try:
            self._env = SyncVectorEnv(
                [lambda: gymnasium.make(spec, max_episode_steps=limit, **screen) for _ in range(count)],
                autoreset_mode=AutoresetMode.SAME_STEP,
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise SettingsError(f"--environment {settings.id}: {error}") from error
        observations, actions = self._env.single_observation_space, self._env.single_action_space
        if not isinstance(observations, Box) or not isinstance(actions, Discrete):
            self._env.close()
            raise SettingsError(
                f"--environment {settings.id}: has observations {observations} and actions {actions}; "
                "Box observations and Discrete actions can be learned"
            )
        self.count = count
        self._table = _action_table(settings, int(actions.n)) + int(actions.start)
        self.actions: ActionSpace = DiscreteActions(len(self._table))
        self.observation_shape = observations.shape
        self.observation_dtype: np.dtype[Any] = np.dtype(np.uint8 if observations.dtype == np.uint8 else np.float32)
        self.description = {
            "environment": settings.id,
            "observation": str(observations),
            "actions": len(self._table),
            "time limit": settings.max_episode_steps or spec.max_episode_steps,
        }

    def reset(self, seed: int) -> Observations:
        observations, _ = self._env.reset(seed=seed)
        return self._typed(observations)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        observations, rewards, terminated, truncated, info = self._env.step(self._table[actions])
        final = None
        if "final_obs" in info:
            final = self._typed(observations).copy()
            for row in np.flatnonzero(info["_final_obs"]):
                final[row] = info["final_obs"][row]
        return Stepped(self._typed(observations), rewards.astype(np.float32), terminated, truncated, final)

    def screen(self) -> Screen:
        screens = self._env.render()
        assert screens is not None, "made without a screen"
        return np.asarray(screens[0], dtype=np.uint8)

    def close(self) -> None:
        self._env.close()

    def _typed(self, observations: Observations) -> Observations:
        return observations.astype(self.observation_dtype, copy=False)


def _spec_of(environment: str) -> Any:
    """The registered specification of an id. Raises SettingsError with what Gymnasium suggests."""
    try:
        return gymnasium.spec(environment)
    except gymnasium.error.Error as error:
        raise SettingsError(f"--environment {environment}: {error}") from error


def _action_table(settings: Environment, actions: int) -> NDArray[np.int64]:
    """Which action of the environment each action of the policy is."""
    if too_large := [action for action in settings.actions if action >= actions]:
        raise SettingsError(f"--actions {too_large[0]}: {settings.id} has actions 0 to {actions - 1}")
    return np.array(settings.actions or range(actions), dtype=np.int64)
