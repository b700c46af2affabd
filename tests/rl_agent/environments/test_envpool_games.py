"""EnvPool's environments keep the promises of the interface: no step is lost at the end of a game."""

import sys
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import BoxActions, DiscreteActions

CARTPOLE = Environment(id="envpool/CartPole-v1")


class FakePool:
    """Gymnasium's games, stepped as EnvPool steps its own: a game that has ended is reset in the next step."""

    def __init__(self, name: str, *, num_envs: int, num_threads: int, env_seed: list[int], **limit: int) -> None:
        self._games = [gymnasium.make(name, disable_env_checker=True, **limit) for _ in range(num_envs)]
        self._seeds, self._over = env_seed, [False] * num_envs
        self.observation_space, self.action_space = self._games[0].observation_space, self._games[0].action_space

    def reset(self, rows: Any = None) -> tuple[Any, dict[str, Any]]:
        seeds = dict(enumerate(self._seeds)) if rows is None else dict.fromkeys(rows.tolist())
        for row in seeds:
            self._over[row] = False
        return np.stack([self._games[row].reset(seed=seed)[0] for row, seed in seeds.items()]), {}

    def step(self, actions: Any) -> Any:
        results: list[Any] = []
        for row, action in enumerate(actions):
            if self._over[row]:
                results.append((self.reset(np.array([row]))[0][0], 0.0, False, False))
                continue
            results.append(self._games[row].step(action)[:4])
            self._over[row] = bool(results[-1][2] or results[-1][3])
        return *map(np.array, zip(*results, strict=True)), {}

    def close(self) -> None:
        for game in self._games:
            game.close()


@pytest.fixture(params=["real", "fake"])
def envpool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """EnvPool itself where it is installed, and what the adapter takes it for."""
    if request.param == "real":
        pytest.importorskip("envpool", reason="needs the extra envpool")
    else:
        fake: Any = ModuleType("envpool")
        fake.make_gymnasium, fake.list_all_envs = FakePool, lambda: ["CartPole-v1", "Pendulum-v1"]
        monkeypatch.setitem(sys.modules, "envpool", fake)


@pytest.mark.usefixtures("envpool")
def test_every_step_is_one_of_the_game_also_the_first_after_an_end() -> None:
    """Against Gymnasium's CartPole, set to the state before each step."""
    environments = make_environments(CARTPOLE, count=3)
    assert (environments.actions, environments.observations.shape) == (DiscreteActions(2), (4,))
    game = gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped
    game.reset(seed=0)
    random = np.random.default_rng(2)
    before, ends = environments.reset(7), 0
    for _ in range(150):
        actions = random.integers(0, 2, 3)
        stepped = environments.step(actions)
        after = stepped.observations if stepped.final_observations is None else stepped.final_observations
        for row in range(3):
            game.state, game.steps_beyond_terminated = tuple(before[row].astype(float)), None  # type: ignore[attr-defined]
            expected, _, terminated, _, _ = game.step(actions[row])
            np.testing.assert_allclose(after[row], expected, atol=1e-5)
            assert (bool(stepped.terminated[row]), stepped.rewards[row]) == (terminated, 1.0)
            if terminated:
                assert np.abs(stepped.observations[row]).max() <= 0.05, "the first of the next game"
                ends += 1
        before = stepped.observations.copy()
    environments.close()
    assert ends > 10


@pytest.mark.usefixtures("envpool")
def test_environment_k_has_the_seed_plus_k_and_the_time_limit_truncates() -> None:
    settings = Environment(id="envpool/Pendulum-v1", max_episode_steps=5)
    both, second = make_environments(settings, count=2), make_environments(settings, count=1)
    assert isinstance(both.actions, BoxActions)
    np.testing.assert_array_equal(both.reset(4)[1:], second.reset(5))
    for step in range(11):
        stepped = both.step(np.zeros((2, 1), np.float32))
        other = second.step(np.zeros((1, 1), np.float32))
        np.testing.assert_array_equal(stepped.observations[1:], other.observations)
        assert stepped.truncated.tolist() == [step % 5 == 4] * 2
        assert not stepped.terminated.any()
    both.close()
    second.close()


@pytest.mark.usefixtures("envpool")
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Environment(id="envpool/Nope-v0"), "--environment envpool/Nope-v0: EnvPool has no environment"),
        (Environment(id="envpool/CartPole-v1", preprocessing="atari84"), "--preprocessing atari84"),
        (Environment(id="envpool/CartPole-v1", wrapper=("a:B",)), "--wrapper a:B"),
    ],
    ids=str,
)
def test_what_envpool_has_not_is_refused(settings: Environment, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_environments(settings, count=1)


def test_a_game_that_shows_what_is_no_number_is_cut_off_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(FakePool):
        def step(self, actions: Any) -> Any:
            seen, *rest = super().step(actions)
            seen[1, 2] = np.nan
            return seen, *rest

    fake: Any = ModuleType("envpool")
    fake.make_gymnasium, fake.list_all_envs = Breaks, lambda: ["CartPole-v1"]
    monkeypatch.setitem(sys.modules, "envpool", fake)
    environments = make_environments(CARTPOLE, count=2, forgives=True)
    environments.reset(0)
    stepped = environments.step(np.zeros(2, np.int64))
    assert stepped.truncated.tolist() == [False, True]
    assert stepped.failed is not None
    assert stepped.failed.tolist() == [False, True]
    assert np.isfinite(stepped.observations).all()
    assert np.abs(stepped.observations[1]).max() <= 0.05, "the first of the next game"


def test_a_missing_envpool_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(SettingsError, match=r"^--environment envpool/CartPole-v1: .*'\.\[envpool\]'$"):
        make_environments(CARTPOLE, count=1)
