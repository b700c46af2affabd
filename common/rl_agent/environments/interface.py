"""
The interface of B environments in lockstep, the same for every family.

An environment whose episode ends is reset in the same step (SAME_STEP), so the policy can act on every row.

A family of environments that may show NaN, infinity or numbers of absurd size calls `checked` at each step: one of them
would spoil every statistic, memory and weight behind it for good. (ALE shows bytes and whole numbers.)
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ps_common.program.reasons import reason_of
from ps_common.protocol.names import MOST_REWARD
from rl_agent.environments.spaces import Actions, ActionSpace, Observations, ObservationSpace
from rl_agent.games import Metrics

log = logging.getLogger("rl-worker")

DEFAULT_STEPS_PER_SECOND = 30.0  # of an environment without `render_fps`

Screen = NDArray[np.uint8]  # [height, width, 3] RGB


@dataclass(frozen=True)
class Unsound:
    """The first number of a step that nothing can be learned from."""

    row: int  # of the environment
    what: str  # "the reward nan", "an observation that holds inf"
    is_first: bool = False  # the observation is the first of a game

    def sentence(self, environments: "Environments", *, steps: int = 0) -> str:
        """`steps`: of the game, before this one."""
        name = next(iter(environments.description.values()), "the environment")
        when = "when it was reset" if self.is_first else f"in step {steps + 1} of its game"
        return f"{name}: environment {self.row} returned {self.what} {when}"


@dataclass(frozen=True)
class Stepped:
    """The result of one step of all B environments. Arrays are [B] or [B, ...]."""

    observations: Observations  # to act on next; the first of the new episode where one has ended
    rewards: NDArray[np.float32]  # true, unclipped
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_observations: Observations | None  # in rows of ended episodes their last observation; None if none ended
    # the learner's return ends here, by a lost life or a reward, and the game continues; None: it never does
    return_ended: NDArray[np.bool_] | None = None
    failed: NDArray[np.bool_] | None = None  # games that an exception cut off, whose scores do not count; None: none
    unsound: Unsound | None = None  # such a number was shown, and is 0 here
    metrics: Mapping[int, Metrics] = field(default_factory=dict)  # of games that ended, by row

    @property
    def return_ends(self) -> NDArray[np.bool_]:
        """[B]: the step is the last of its return: of its game, or of a life or point where these end one."""
        ended = self.terminated | self.truncated
        return ended if self.return_ended is None else ended | self.return_ended


class Environments(Protocol):
    """B environments in lockstep."""

    count: int  # B
    observations: ObservationSpace
    actions: ActionSpace
    description: dict[str, Any]  # the settings in effect, for display
    steps_per_second: float  # at the speed of human play

    def reset(self, seed: int) -> Observations:
        """Start new episodes; environment k is seeded with seed + k."""

    def step(self, actions: Actions) -> Stepped:
        """Step every environment once. Actions outside the bounds of BoxActions are clipped to the bounds."""

    def screen(self) -> Screen:
        """
        The frame of the first environment. Without `with_screen` it may be what the agent sees, [height, width] gray.
        """

    def close(self) -> None: ...


def random_play(environments: Environments, *, seed: int) -> Iterator[Stepped]:
    """Steps with random actions, of those that a mask allows, without end; the environments are reset first."""
    random, mask = np.random.default_rng(seed), environments.observations.mask
    observations = environments.reset(seed)
    while True:
        allowed = None if mask is None else mask.of(observations).astype(np.bool_)
        stepped = environments.step(environments.actions.sample(random, environments.count, allowed))
        observations = stepped.observations
        yield stepped


class Closes(Protocol):
    """One environment, or several."""

    def close(self) -> Any: ...


@contextmanager
def closed_if_refused(environment: Closes) -> Iterator[None]:
    """Closes it if the block raises."""
    try:
        yield
    except BaseException:
        close_logged(environment)
        raise


def close_logged(environment: Closes) -> None:
    """
    Close it, and log an error of a user's close(): it undoes nothing that was done, and replaces no other error. A
    close() that ends the program does end it.
    """
    try:
        environment.close()
    except Exception as error:
        log.warning("close() of the environment has failed: %s", reason_of(error))


# Either way. The squares of 2^24 of them, which is what statistics count, add up to less than the 10^30 that a server
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
