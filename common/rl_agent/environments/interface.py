"""
The interface of B environments in lockstep, the same for every family.

An environment whose episode ends is reset in the same step (SAME_STEP), so the policy can act on every row.

Numbers that it shows can be learned from: failures.py cuts off a game with NaN or infinity.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ps_common.program.reasons import reason_of
from rl_agent.environments.spaces import Actions, ActionSpace, Observations, ObservationSpace
from rl_agent.games import Metrics

log = logging.getLogger("rl-worker")

DEFAULT_STEPS_PER_SECOND = 30.0  # of an environment without `render_fps`

MOST_SEED = 2**30  # ALE takes 31 bits, and the seeds of thousands of environments follow

Screen = NDArray[np.uint8]  # [height, width, 3] RGB


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
    failed: NDArray[np.bool_] | None = None  # games that a failure cut off, whose scores do not count; None: none
    metrics: Mapping[int, Metrics] = field(default_factory=dict)  # of games that ended, by row

    @property
    def ended(self) -> NDArray[np.bool_]:
        """[B]: the step is the last of its game."""
        return self.terminated | self.truncated

    @property
    def return_ends(self) -> NDArray[np.bool_]:
        """[B]: the step is the last of its return: of its game, or of a life or point where these end one."""
        return self.ended if self.return_ended is None else self.ended | self.return_ended


class Environments(Protocol):
    """B environments in lockstep."""

    count: int  # B
    observations: ObservationSpace
    actions: ActionSpace
    description: dict[str, Any]  # the settings in effect, for display
    steps_per_second: float  # at the speed of human play

    def reset(self, seed: int | None) -> Observations:
        """Start new episodes; environment k is seeded with seed + k. None: by any seeds, of which no two are equal."""

    def step(self, actions: Actions) -> Stepped:
        """Step every environment once. Actions outside the bounds of BoxActions are clipped to the bounds."""

    def screen(self) -> Screen:
        """
        The frame of the first environment. Without `with_screen` it may be what the agent sees, [height, width] gray.
        """

    def close(self) -> None: ...


def seed_or_any(seed: int | None) -> int:
    """The seed, or one that is drawn from the operating system's random numbers."""
    return secrets.randbelow(MOST_SEED) if seed is None else seed


def random_play(environments: Environments, *, seed: int | None) -> Iterator[Stepped]:
    """Steps with random actions, of those that a mask allows, without end; the environments are reset first."""
    random, mask = np.random.default_rng(seed), environments.observations.mask
    observations = environments.reset(seed)
    while True:
        allowed = None if mask is None else mask.of(observations).astype(np.bool_)
        stepped = environments.step(environments.actions.sample(random, environments.count, allowed))
        observations = stepped.observations
        yield stepped


@contextmanager
def closed_if_refused(environment: Any) -> Iterator[None]:
    """Closes it, one or several, if the block raises."""
    try:
        yield
    except BaseException:
        close_logged(environment)
        raise


def close_logged(environment: Any) -> None:
    """
    Close it, and log an error of a user's close(): it undoes nothing that was done, and replaces no other error. A
    close() that ends the program does end it.
    """
    try:
        environment.close()
    except Exception as error:
        log.warning("close() of the environment has failed: %s", reason_of(error))
