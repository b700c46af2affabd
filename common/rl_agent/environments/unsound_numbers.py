"""
Numbers of an environment that nothing can be learned from: NaN, infinity, and numbers of absurd size.

A family of environments that may show such numbers calls `checked` at each step: one of them would spoil every
statistic, memory and weight behind it for good. (ALE shows bytes and whole numbers.)
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_common.protocol.names import MOST_REWARD
from rl_agent.environments.interface import Stepped, Unsound
from rl_agent.environments.spaces import Observations, ObservationSpace

# Either way. The squares of 10^7 of them, which is what statistics count, add up to less than the 10^30 that a server
# takes for a statistic.
MOST_OBSERVATION = 1e10


def checked(stepped: Stepped, space: ObservationSpace, *, unsound: Unsound | None = None) -> Stepped:
    """The same step if all its numbers are sound; otherwise with 0 for those that are not, and the first of them."""
    if (unsound := unsound or unsound_step(stepped, space)) is None:
        return stepped
    final = stepped.final_observations
    return replace(
        stepped,
        observations=sound_observations(stepped.observations, space),
        rewards=np.where(_within(stepped.rewards, MOST_REWARD), stepped.rewards, np.float32(0)),
        final_observations=None if final is None else sound_observations(final, space),
        unsound=unsound,
    )


def unsound_step(stepped: Stepped, space: ObservationSpace) -> Unsound | None:
    """None when all numbers of the step are sound."""
    if (bad := first_unsound(stepped.rewards, MOST_REWARD)) is not None:
        return Unsound(bad.row, f"the reward {bad.what}")
    if stepped.final_observations is not None and stepped.truncated.any():
        cut_off = np.flatnonzero(stepped.truncated)  # of other games the last observation is not used
        if found := unsound_observation(stepped.final_observations[cut_off], space):
            return replace(found, row=int(cut_off[found.row]), is_first=False)
    found = unsound_observation(stepped.observations, space)
    return found and replace(found, is_first=bool(stepped.terminated[found.row] | stepped.truncated[found.row]))


def unsound_observation(observations: Observations, space: ObservationSpace) -> Unsound | None:
    """None when all numbers of the first observations [B, ...] of games are sound, as bytes are."""
    for numbers in space.floats(observations):
        if (bad := first_unsound(numbers, MOST_OBSERVATION)) is not None:
            return Unsound(bad.row, f"an observation that holds {bad.what}", is_first=True)
    return None


@np.errstate(over="ignore", invalid="ignore")
def first_unsound(numbers: NDArray[Any], most: float) -> Unsound | None:
    """The first of numbers [B, ...] that is not within ±`most`. A sum of squares is fast, and mostly says: none."""
    flat = numbers.ravel()
    if np.dot(flat, flat) <= most * most or (within := _within(flat, most)).all():
        return None
    at = int(within.argmin())
    remedy = f" (beyond ±{most:g}: clip or scale it)" if np.isfinite(flat[at]) else ""
    return Unsound(at * len(numbers) // len(flat), f"{flat[at]:g}{remedy}")


def unsound_games(stepped: Stepped, space: ObservationSpace) -> NDArray[np.intp]:
    """The rows of games that go on after a number that is not sound."""
    is_sound = _within(stepped.rewards, MOST_REWARD)
    for numbers in space.floats(stepped.observations):
        is_sound &= _within(numbers, MOST_OBSERVATION).reshape(len(numbers), -1).all(1)
    return np.flatnonzero(~(is_sound | stepped.terminated | stepped.truncated))


def sound_observations(observations: Observations, space: ObservationSpace) -> Observations:
    """A copy with 0 for each number that is not sound."""
    copied = observations.copy()
    for numbers in space.floats(copied):
        numbers[~_within(numbers, MOST_OBSERVATION)] = 0
    return copied


def _within(numbers: NDArray[Any], most: float) -> NDArray[np.bool_]:
    """Which numbers are not larger, either way; NaN is not."""
    within: NDArray[np.bool_] = np.abs(numbers) <= most
    return within
