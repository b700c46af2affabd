"""Observations and actions of any Gymnasium environment become one array and one action space."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Space, Tuple
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import BoxActions, DiscreteActions

PENDULUM = Environment(id="Pendulum-v1")


class Shows(gymnasium.Env[Any, Any]):
    """An environment that shows the next sample of a space, and ends every fourth step."""

    def __init__(self, seen: Space[Any], actions: Space[Any] | None = None) -> None:
        self.observation_space = seen
        self.action_space = actions or Discrete(2)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation_space.sample(), 0.0, self._steps == 4, False, {}


@pytest.fixture
def shown() -> Any:
    """Registers an environment for the length of a test."""

    def register(seen: Space[Any], actions: Space[Any] | None = None) -> Environment:
        gymnasium.register("Shows-v0", lambda: Shows(seen, actions), disable_env_checker=True)
        return Environment(id="Shows-v0")

    yield register
    gymnasium.registry.pop("Shows-v0", None)


@pytest.mark.parametrize(
    ("seen", "shape", "dtype"),
    [
        (Discrete(5, start=2), (5,), np.float32),
        (MultiDiscrete([2, 3]), (5,), np.float32),
        (Dict(a=Box(0, 1, (2, 2)), b=Discrete(3)), (7,), np.float32),
        (Tuple((Discrete(2), Box(-1, 1, (3,)))), (5,), np.float32),
        (Box(0, 255, (96, 64, 3), np.uint8), (3, 96, 64), np.uint8),
        (Box(0, 255, (4, 84, 84), np.uint8), (4, 84, 84), np.uint8),
        (Box(0, 1, (10, 10, 10), np.bool_), (10, 10, 10), np.float32),
        (Box(0, 1, (10, 8, 4), np.float64), (4, 10, 8), np.float32),
    ],
    ids=str,
)
def test_what_is_seen_becomes_one_array(shown: Any, seen: Space[Any], shape: tuple[int, ...], dtype: type) -> None:
    """Against samples of the same space with the same seed, flattened or turned by hand."""
    seen.seed(7)
    samples = [seen.sample() for _ in range(5)]
    environments = make_environments(shown(seen), count=1)
    assert (environments.observations.shape, environments.observations.dtype) == (shape, dtype)
    assert environments.actions == DiscreteActions(2)
    observations = [environments.reset(7)]
    for _ in range(4):
        stepped = environments.step(np.zeros(1, dtype=np.int64))
        observations.append(stepped.observations)
    assert stepped.final_observations is not None
    observations[-1] = stepped.final_observations
    environments.close()
    for sample, observation in zip(samples, observations, strict=True):
        turned = seen.shape is not None and len(seen.shape) == 3 and seen.shape != (4, 84, 84)
        expected = sample.transpose(2, 0, 1) if turned else sample
        if not isinstance(seen, Box):
            expected = gymnasium.spaces.flatten(seen, sample)
        assert (observation.shape, observation.dtype) == ((1, *shape), dtype)
        np.testing.assert_allclose(observation[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("seen", "actions", "sentence"),
    [
        (Sequence(Box(0, 1)), None, "its observation space Sequence"),
        (Box(0, 1), Tuple((Discrete(2), Discrete(2))), "its action space is Tuple"),
        (Box(0, 1), Box(0, 5, (1,), np.int64), "its action space is Box"),
    ],
    ids=str,
)
def test_what_fits_no_array_is_refused(shown: Any, seen: Space[Any], actions: Space[Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"^--environment Shows-v0: {sentence}"):
        make_environments(shown(seen, actions), count=1)


def test_pendulum_is_played_exactly_as_gymnasium_plays_it_and_its_bounds_hold() -> None:
    environments = make_environments(PENDULUM, count=2)
    assert isinstance(environments.actions, BoxActions)
    assert (environments.actions.low.tolist(), environments.actions.high.tolist()) == ([-2], [2])
    plain = [gymnasium.make("Pendulum-v1", disable_env_checker=True) for _ in range(2)]
    first = environments.reset(3)
    np.testing.assert_array_equal(first, [game.reset(seed=3 + row)[0] for row, game in enumerate(plain)])
    for step in range(201):
        actions = np.array([[2 * np.sin(step)], [9.0]], dtype=np.float32)  # beyond the bounds: as at the bounds
        stepped = environments.step(actions)
        for row, game in enumerate(plain):
            seen, reward, terminated, truncated, _ = game.step(actions[row].clip(-2, 2))
            assert stepped.rewards[row] == pytest.approx(reward)
            assert (stepped.terminated[row], stepped.truncated[row]) == (terminated, truncated) == (False, step == 199)
            if truncated:
                assert stepped.final_observations is not None
                np.testing.assert_array_equal(stepped.final_observations[row], seen)
                seen, _ = game.reset()
            np.testing.assert_array_equal(stepped.observations[row], seen)
    environments.close()
    for game in plain:
        game.close()


def test_a_module_before_the_id_is_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_games.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        environments = make_environments(Environment(id="my_games:Mine-v0"), count=1)
    finally:
        gymnasium.registry.pop("Mine-v0", None)
        sys.modules.pop("my_games", None)
    observations: NDArray[np.float32] = environments.reset(0)
    environments.close()
    assert observations.shape == (1, 4)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("VizdoomBasic-v1", "vizdoom.gymnasium_wrapper", "doom"),
        ("MinAtar/Breakout-v1", "minatar.gym", "minatar"),
        ("InvertedPendulum-v5", "gymnasium.envs.mujoco.inverted_pendulum_v5", "mujoco"),
        ("LunarLander-v3", "gymnasium.envs.box2d.lunar_lander", "box2d"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    if name in gymnasium.registry and extra == "minatar":
        monkeypatch.delitem(gymnasium.registry, name)
    remedy = rf"; in a checkout of ps-rl: pip install -c constraints\.txt '\.\[{extra}\]'$"
    with pytest.raises(SettingsError, match=rf"^--environment {name}: .*{remedy}"):
        make_environments(Environment(id=name), count=1)
