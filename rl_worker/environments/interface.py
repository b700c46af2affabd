"""
The interface of B environments in lockstep, the same for every family.

An environment whose episode ends is reset in the same step (SAME_STEP), so the policy can act on every row.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Observations = NDArray[Any]  # [B, ...] uint8 or float32
Actions = NDArray[Any]  # int64 [B] of DiscreteActions, float32 [B, A] of BoxActions
Screen = NDArray[np.uint8]  # [height, width, 3] RGB


@dataclass(frozen=True)
class DiscreteActions:
    """One of the actions 0 … count − 1."""

    count: int
    names: tuple[str, ...] = field(default=(), compare=False)  # of the actions, where the environment has names

    def sample(self, random: np.random.Generator, size: int) -> Actions:
        """`size` random actions."""
        return random.integers(0, self.count, size)


@dataclass(frozen=True, eq=False)
class BoxActions:
    """A real vector between two bounds, which may be infinite."""

    low: NDArray[np.float32]  # [A]
    high: NDArray[np.float32]  # [A]

    def sample(self, random: np.random.Generator, size: int) -> Actions:
        """`size` random actions; a missing bound counts as ±1."""
        low = np.where(np.isfinite(self.low), self.low, np.minimum(-1, self.high - 1))
        high = np.where(np.isfinite(self.high), self.high, np.maximum(1, low + 1))
        return random.uniform(low, high, (size, len(low))).astype(np.float32)


ActionSpace = DiscreteActions | BoxActions


@dataclass(frozen=True)
class Stepped:
    """The result of one step of all B environments. Arrays are [B] or [B, ...]."""

    observations: Observations  # to act on next; the first of the new episode where one has ended
    rewards: NDArray[np.float32]  # true, unclipped
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_observations: Observations | None  # in rows of ended episodes their last observation; None if none ended
    life_lost: NDArray[np.bool_] | None = None  # a life was lost and the game continues; None: lives are not counted
    learner_rewards: NDArray[np.float32] | None = None  # replace the true rewards in the loss; None: they do not


class Environments(Protocol):
    """B environments in lockstep."""

    count: int  # B
    observation_shape: tuple[int, ...]  # of one environment; images with their channels first
    observation_dtype: np.dtype[Any]  # uint8 or float32
    actions: ActionSpace
    description: dict[str, Any]  # the settings in effect, for display
    steps_per_second: float  # at the speed of human play

    def reset(self, seed: int) -> Observations:
        """Start new episodes; environment k is seeded with seed + k."""
        ...

    def step(self, actions: Actions) -> Stepped:
        """Step every environment once. Actions outside the bounds of BoxActions are clipped to the bounds."""
        ...

    def screen(self) -> Screen:
        """
        The frame of the first environment. Without `with_screen` it may be what the agent sees, [height, width] gray.
        """
        ...

    def close(self) -> None: ...
