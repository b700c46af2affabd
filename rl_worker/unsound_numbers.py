"""
Numbers of an environment that nothing can be learned from: NaN, infinity, and rewards of absurd size.

They are looked for where they enter, at each step: one of them would spoil every statistic, memory and weight behind
it for good. A number that was found is a 0 from there on.
"""

from dataclasses import dataclass, replace

import numpy as np

from rl_worker.environments.interface import Environments, Stepped
from rl_worker.environments.spaces import Observations, ObservationSpace

MOST_REWARD = 1e10  # either way; float32 holds no sums of the squares of returns far above it


@dataclass(frozen=True)
class Unsound:
    """The first such number of a step."""

    row: int  # of the environment
    what: str  # "the reward nan", "an observation that holds inf"

    def sentence(self, environments: Environments, *, steps: int) -> str:
        """`steps`: of the game, before this one; -1 when it was reset."""
        name = next(iter(environments.description.values()), "the environment")
        when = "when it was reset" if steps < 0 else f"in step {steps + 1} of its game"
        return f"{name}: environment {self.row} returned {self.what} {when}"


def unsound_step(stepped: Stepped, space: ObservationSpace) -> Unsound | None:
    """None when all numbers of the step are sound."""
    is_sound = np.abs(stepped.rewards) <= MOST_REWARD  # which NaN is not
    if not is_sound.all():
        row = int(is_sound.argmin())
        return Unsound(row, f"the reward {stepped.rewards[row]:g}")
    if (found := unsound_observation(stepped.observations, space)) or stepped.final_observations is None:
        return found
    cut_off = np.flatnonzero(stepped.truncated)  # of other games the last observation is not used
    found = unsound_observation(stepped.final_observations[cut_off], space)
    return found and replace(found, row=int(cut_off[found.row]))


def unsound_observation(observations: Observations, space: ObservationSpace) -> Unsound | None:
    """None when all of the observations [B, ...] are finite, as bytes are."""
    for numbers in space.floats(observations):
        if not (is_finite := np.isfinite(numbers)).all():
            at = np.unravel_index(is_finite.argmin(), numbers.shape)
            return Unsound(int(at[0]), f"an observation that holds {numbers[at]:g}")
    return None


def made_sound(stepped: Stepped, space: ObservationSpace) -> Stepped:
    """The step with 0 for every number that is not sound."""
    is_sound = np.abs(stepped.rewards) <= MOST_REWARD
    learner_rewards, final = stepped.learner_rewards, stepped.final_observations
    return replace(
        stepped,
        observations=finite(stepped.observations, space),
        rewards=np.where(is_sound, stepped.rewards, np.float32(0)),
        learner_rewards=None if learner_rewards is None else np.where(is_sound, learner_rewards, np.float32(0)),
        final_observations=None if final is None else finite(final, space),
    )


def finite(observations: Observations, space: ObservationSpace) -> Observations:
    """A copy with 0 for NaN and infinity."""
    copied = observations.copy()
    for numbers in space.floats(copied):
        np.nan_to_num(numbers, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    return copied
