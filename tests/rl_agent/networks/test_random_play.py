"""
Random play, which normalization begins with: announced, bounded in time and memory, and without numbers that are not
finite.
"""

import weakref

import numpy as np
import pytest
import torch

from rl_agent.environments.interface import Stepped
from rl_agent.environments.spaces import ObservationSpace
from rl_agent.networks.normalization import FIRST_STEPS, RandomPlayNormalization, measure_normalization
from rl_agent.networks.running_statistics import ReturnNormalization, RunningNormalization
from rl_agent.rollouts import Decision, RolloutCollector
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
        "random play measures what is normalized: 30 steps, or those of 20 s",
        *[f"random play: {seconds} steps after {seconds} s" for seconds in range(5, 20, 5)],
        "random play ends after 20 s: 20 steps have to do",
    ]
    assert (float(returns.count), len(played)) == (20, 20)


def test_the_returns_of_random_play_are_those_of_training() -> None:
    """Games end, are truncated, and lose lives: the collector of training makes the same statistics of these steps."""
    scripts = [
        [Game((1.0, -2.0, 30.0, 4.0), "terminated", lives_lost=(1,))],
        [Game((5.0, 1.0, 2.0), "truncated"), Game((3.0,) * 7, "both", lives_lost=(2, 4))],
    ]
    played, trained = (ReturnNormalization(discount=0.9, clip=0.0) for _ in range(2))
    measure_normalization(played, ScriptedEnvironments(*scripts), seed=0)
    collector = RolloutCollector(
        ScriptedEnvironments(*scripts), Still(), unroll_length=FIRST_STEPS // 2, discount=0.9, seed=0
    )
    for _ in range(2):
        unroll = collector.collect()
        trained.observe(unroll.rewards, unroll.continues)
    trained.begin()
    for name, buffer in played.named_buffers():
        torch.testing.assert_close(buffer, getattr(trained, name), msg=name)


class Still:
    """An actor that does nothing."""

    def initial_state(self, count: int) -> tuple[torch.Tensor, ...]:
        return ()

    def act(self, observations: torch.Tensor, state: object, starts: torch.Tensor, *, greedy: bool = False) -> Decision:
        return Decision(torch.zeros(len(observations), dtype=torch.int64), (), {})


class Images(ScriptedEnvironments):
    """It counts the observations of `shape` that exist."""

    def __init__(self, shape: tuple[int, ...], dtype: type, count: int = 1) -> None:
        super().__init__(*[[Game((0.0,) * 5, "terminated")]] * count)
        self.observations = ObservationSpace(shape, np.dtype(dtype))
        self.seen: list[np.ndarray] = []
        self.alive = self.most_alive = 0
        self._random = np.random.default_rng(0)

    def step(self, actions: np.ndarray) -> Stepped:
        self.taken.append(actions.tolist())
        shown = self._random.integers(0, 256, (self.count, *self.observations.shape))
        observations = shown.astype(self.observations.dtype)
        self.seen.append(shown)
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(observations, self._freed)
        no, none = np.zeros(self.count, np.float32), np.zeros(self.count, np.bool_)
        return Stepped(observations, no, none, none, None)

    def reset(self, seed: int) -> np.ndarray:
        return np.zeros((self.count, *self.observations.shape), self.observations.dtype)

    def _freed(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_random_play_keeps_no_observation(dtype: type) -> None:
    shape = (2, 4, 5)
    measured: torch.nn.Module = RandomPlayNormalization(4, 5) if dtype is np.uint8 else RunningNormalization(shape)
    environments = Images(shape, dtype)
    measure_normalization(
        torch.nn.Sequential(measured, ReturnNormalization(discount=0.9, clip=0)), environments, seed=0
    )
    assert environments.most_alive <= 2, "this one and the one before"
    pixels = np.concatenate(environments.seen).astype(float)
    if isinstance(measured, RunningNormalization):
        mean, deviation = measured.mean_and_deviation()
        assert float(measured.count) == FIRST_STEPS
        np.testing.assert_allclose(measured.center + mean, pixels.mean((0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(deviation, pixels.std((0, 2, 3)), rtol=1e-6)
    elif isinstance(measured, RandomPlayNormalization):
        np.testing.assert_allclose(measured.mean, pixels[:, -1].mean(0), rtol=1e-6)
        np.testing.assert_allclose(1 / measured.scale, pixels[:, -1].std(0), rtol=1e-6)
