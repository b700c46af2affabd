"""
Games that fail: how many may, and those with numbers that nothing can be learned from.

NaN, infinity and numbers of absurd size would spoil every statistic, memory and weight behind them for good. A game
with one has failed, as a game whose environment has raised an exception: it is truncated at its last finite
observation, and its score does not count. ALE needs no check, since it shows bytes and whole numbers.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_common.errors import PsRlError
from ps_common.meters import POWERS_OF_TEN
from ps_common.protocol.names import MOST_REWARD
from rl_agent.environments.interface import Stepped
from rl_agent.environments.spaces import Observations, ObservationSpace

# Either way. The squares of 2^24 of them, which is what statistics count, add up to less than the 10^30 that a server
# takes for a statistic.
MOST_OBSERVATION = 1e10
LEAST_FAILURES = 3  # that end a worker, however few games it has played

log = logging.getLogger("rl-worker")


class FailureCount:
    """The failures among the games of a worker."""

    def __init__(self, name: str, most_share: float) -> None:
        """`name`: of the environment. `most_share`: of games that may fail."""
        self._name, self._most_share = name, most_share
        self._games = self._failures = 0

    def ended(self, games: int) -> None:
        """This number of games has ended, failed ones among them."""
        self._games += games

    def failed(self, row: int, sentence: str) -> None:
        """A failure of environment `row`. Raises PsRlError when there are too many."""
        self._failures += 1
        what = f"{self._name}: environment {row}: {sentence}"
        if self._failures >= LEAST_FAILURES and self._failures > self._most_share * self._games:
            raise PsRlError(
                f"{what}; {self._failures} failures in {self._games} games are more than --most-failures "
                f"{self._most_share:g} allows; mend the environment, or allow more"
            )
        if self._failures in POWERS_OF_TEN:
            log.warning("%s; its game is cut off (%d failures so far)", what, self._failures)


class NumberCheck:
    """Looks at each step of B environments, and cuts off games with such numbers."""

    def __init__(
        self,
        name: str,
        space: ObservationSpace,
        failures: FailureCount | None,
        *,
        begin: Callable[[int], NDArray[Any]] | None = None,
    ) -> None:
        """
        `name`: of the environment. `failures` counts such games; None: each is an error. `begin` resets one environment
        and returns its first observation; None: its game goes on, and does not count.
        """
        self._name, self._space, self._failures, self._begin = name, space, failures, begin

    def first(self, observations: Observations) -> Observations:
        """The observations after a reset, with 0 for such numbers. Raises PsRlError where there are too many."""
        for row, what in self._in_observations(observations).items():
            self._fails(row, f"{what} when it was reset")
        self._shown = self._zeroed(observations)
        self._goes_on = np.zeros(len(observations), np.bool_)  # a game that was cut off, and whose environment plays on
        return self._shown

    def step(self, stepped: Stepped) -> Stepped:
        """The same step where all its numbers can be learned from. Raises PsRlError where too many games fail."""
        ended = stepped.ended
        if (self._goes_on & ended).any():
            before = False if stepped.failed is None else stepped.failed
            stepped = replace(stepped, failed=(self._goes_on & ended) | before)
        self._goes_on &= ~ended
        if found := self._in_step(stepped):
            stepped = self._cut_off(stepped, found, ended)
            self._goes_on[list(found)] = self._begin is None and ~ended[list(found)]
        self._shown = stepped.observations
        return stepped

    def _in_step(self, stepped: Stepped) -> dict[int, str]:
        """What is wrong in each row that has such a number, in words."""
        found = self._in_observations(stepped.observations)
        if stepped.final_observations is not None and stepped.truncated.any():
            cut_off = np.flatnonzero(stepped.truncated)  # of other games the last observation is not used
            last = self._in_observations(stepped.final_observations[cut_off])
            found |= {int(cut_off[row]): what for row, what in last.items()}
        rewards = wrong_numbers(stepped.rewards, MOST_REWARD)
        return found | {row: f"the reward {number}" for row, number in rewards.items()}

    def _in_observations(self, observations: Observations) -> dict[int, str]:
        return {
            row: f"an observation with {number} in it"
            for numbers in self._space.floats(observations)
            for row, number in wrong_numbers(numbers, MOST_OBSERVATION).items()
        }

    def _cut_off(self, stepped: Stepped, found: dict[int, str], ended: NDArray[np.bool_]) -> Stepped:
        rows, final = list(found), stepped.final_observations
        observations = stepped.observations.copy()
        rewards, truncated = stepped.rewards.copy(), stepped.truncated.copy()
        final = np.zeros_like(observations) if final is None else final.copy()
        failed = np.zeros(len(rewards), np.bool_) if stepped.failed is None else stepped.failed.copy()
        final[rows], rewards[rows], failed[rows] = self._shown[rows], 0.0, True
        truncated[rows] = ~stepped.terminated[rows]
        for row, what in found.items():
            if self._failures is not None and not ended[row]:
                self._failures.ended(1)
            self._fails(row, what)
            if self._begin is not None and not ended[row]:
                observations[row] = self._begin(row)
        return replace(
            stepped, observations=self._zeroed(observations), rewards=rewards, truncated=truncated,
            final_observations=final, failed=failed,
        )  # fmt: skip

    def _fails(self, row: int, what: str) -> None:
        if self._failures is None:
            raise PsRlError(f"{self._name}: environment {row} returned {what}")
        self._failures.failed(row, f"it returned {what}")

    def _zeroed(self, observations: Observations) -> Observations:
        """The observations, or a copy with 0 for each such number."""
        if not self._in_observations(observations):
            return observations
        copied = observations.copy()
        for numbers in self._space.floats(copied):
            numbers[~(np.abs(numbers) <= MOST_OBSERVATION)] = 0
        return copied


@np.errstate(over="ignore", invalid="ignore")
def wrong_numbers(numbers: NDArray[Any], most: float) -> dict[int, str]:
    """In each row of numbers [B, ...] the first that is not within ±`most`, in words; rows without one are left out."""
    flat = numbers.ravel()  # the sum of squares is fast, and mostly enough
    if np.dot(flat, flat) <= most * most:
        return {}
    rows = numbers.reshape(len(numbers), -1)
    is_wrong = ~(np.abs(rows) <= most)  # NaN is not within
    first = {int(row): rows[row, is_wrong[row].argmax()] for row in np.flatnonzero(is_wrong.any(1))}
    remedy = f" (beyond ±{most:g}: clip or scale it)"
    return {row: f"{number:g}{remedy if np.isfinite(number) else ''}" for row, number in first.items()}
