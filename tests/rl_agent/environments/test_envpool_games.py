"""EnvPool's environments keep the promises of the interface: no step is lost at the end of a game."""

import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import BoxActions, DiscreteActions

CARTPOLE = Environment(id="envpool/CartPole-v1")
needs_envpool = pytest.mark.skipif(not find_spec("envpool"), reason="needs the extra envpool")


@needs_envpool
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


@needs_envpool
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
    assert both.screen().ndim == 2
    both.close()
    second.close()


@needs_envpool
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


def test_a_missing_envpool_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(SettingsError, match=r"^--environment envpool/CartPole-v1: .*'\.\[envpool\]'$"):
        make_environments(CARTPOLE, count=1)
