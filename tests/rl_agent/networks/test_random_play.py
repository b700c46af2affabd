"""Random play, which normalization begins with: announced, bounded in time, and without numbers that are not sound."""

import math

import pytest

from ps_common.errors import PsRlError
from rl_agent.networks.normalization import SAMPLES, measure_normalization
from rl_agent.networks.running_statistics import SMALLEST_RETURN_VARIANCE, ReturnNormalization
from tests.rl_agent.scripted_environments import Game, ScriptedEnvironments


def one_after_another(*rewards: float) -> ScriptedEnvironments:
    return ScriptedEnvironments([Game(rewards, "terminated")])


class Slow:
    """A clock on which each look takes so long."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


def test_random_play_says_how_far_it_is_and_ends_in_time() -> None:
    said: list[str] = []
    played: list[str] = []
    returns = ReturnNormalization(discount=0.9, clip=0.0)
    game = one_after_another(2.0)
    measure_normalization(
        returns, game, seed=0, played=lambda: played.append("a step"), say=said.append, clock=Slow(1.0)
    )
    assert said == [
        "random play measures what is normalized: 3,200 steps, or those of 60 s",
        *[f"random play: {seconds} of 3,200 steps after {seconds} s" for seconds in range(5, 60, 5)],
        "random play ends after 60 s: 60 steps have to do",
    ]
    assert (float(returns.count), len(played)) == (60, 60)


def test_random_play_leaves_out_steps_that_are_not_sound() -> None:
    returns = ReturnNormalization(discount=0.9, clip=0.0)
    measure_normalization(returns, one_after_another(2.0, math.nan, math.inf, 2.0), seed=0)
    assert float(returns.count) == SAMPLES / 2
    assert all(buffer.isfinite().all() for buffer in returns.buffers())


def test_no_return_reaches_across_a_step_that_is_left_out() -> None:
    """All returns are 2: that of the first step would be 3 if it went on to the third."""
    returns = ReturnNormalization(discount=0.5, clip=0.0)
    measure_normalization(returns, one_after_another(2.0, math.nan, 2.0), seed=0)
    assert float(returns.mean_and_deviation()[1]) == pytest.approx(SMALLEST_RETURN_VARIANCE**0.5)


def test_an_environment_without_a_sound_step_is_named_by_random_play() -> None:
    returns = ReturnNormalization(discount=0.9, clip=0.0)
    with pytest.raises(PsRlError, match="no step of random play was sound: environment 0 returned the reward nan"):
        measure_normalization(returns, one_after_another(math.nan), seed=0)
