"""
Many environments in lockstep: what a trainer may ask of them, whatever the family.

An environment that ends is reset in the same step (SAME_STEP), so a row of observations can always be acted on.
"""

from dataclasses import dataclass
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

    def sample(self, random: np.random.Generator, size: int) -> Actions:
        """`size` random actions."""
        return random.integers(0, self.count, size)


@dataclass(frozen=True, eq=False)
class BoxActions:
    """A point between two corners; an end may be infinite."""

    low: NDArray[np.float32]  # [A]
    high: NDArray[np.float32]  # [A]

    def sample(self, random: np.random.Generator, size: int) -> Actions:
        """`size` random actions; where there is no bound they stay within 1."""
        low = np.where(np.isfinite(self.low), self.low, np.minimum(-1, self.high - 1))
        high = np.where(np.isfinite(self.high), self.high, np.maximum(1, low + 1))
        return random.uniform(low, high, (size, len(low))).astype(np.float32)


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
    learner_rewards: NDArray[np.float32] | None = None  # to learn from in place of the true ones; None: the true ones


class Environments(Protocol):
    """B environments in lockstep."""

    count: int  # B
    observation_shape: tuple[int, ...]  # of one environment; images with their channels first
    observation_dtype: np.dtype[Any]  # uint8 or float32
    actions: ActionSpace
    description: dict[str, Any]  # what is really in effect, for people
    steps_per_second: float  # at which a person would play it

    def reset(self, seed: int) -> Observations:
        """Start all anew; environment k gets seed + k."""
        ...

    def step(self, actions: Actions) -> Stepped:
        """Actions beyond the bounds of BoxActions are taken as those at the bounds."""
        ...

    def screen(self) -> Screen:
        """What a person would see of the first environment; made `with_screen` only."""
        ...

    def close(self) -> None: ...
