"""`make_env` and `evaluate`: a run's environment as Gymnasium has it, and full games of a policy in it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv

from ps_common.errors import SettingsError
from ps_common.program import objects
from ps_common.settings.run_settings import with_settings
from ps_rl import Policy, Result, evaluate, load_policy, make_env
from rl_agent.environments.spaces import BoxActions, DiscreteActions, MultiDiscreteActions
from rl_eval.cli import evaluate as rl_eval
from tests.rl_eval.test_cli import CARTPOLE, checkpoint
from tests.rows import row

# Only bytes have bounds; Pendulum's actions are its own; only what gymnasium.make has made is drawn in other ways.
AS_EXPECTED = "ignore:.*(Box (observation|action) space|Box action spaces|alternative render modes)"


class Rooms(gymnasium.Env[Any, Any]):
    """An image, a number and a mask; three actions from 5 on, of which the mask forbids the last."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (8, 9, 3), np.uint8),
            "room": spaces.Discrete(4),
            "action_mask": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space, action
        self.room += int(action == 6)
        ends = self.room == self.size - 1
        return self._seen(), float(action), ends, False, {"metrics": {"rooms": self.room}} if ends else {}

    def _seen(self) -> Any:
        picture = np.full((8, 9, 3), [1, 2, 3], np.uint8)
        return {"picture": picture, "room": self.room, "action_mask": np.array([1, 1, 0], np.int8)}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_given", {})


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """Of CartPole, with first weights."""
    return load_policy(checkpoint(tmp_path / "some.safetensors", CARTPOLE))


@pytest.mark.filterwarnings(AS_EXPECTED)
def test_the_environments_of_runs_are_those_that_gymnasium_checks() -> None:
    of_runs: list[dict[str, Any]] = [
        {"environment": "CartPole-v1"},
        {"source": "pong-a3c"},
        {"environment": Rooms},
        {"environment": Rooms, "actions": [1, 0]},
        {"environment": "Pendulum-v1"},
        {"environment": "CartPole-v1", "render_mode": "rgb_array"},
    ]
    for given in of_runs:
        with row(given):
            check_env(make_env(**given))


def test_a_game_of_one_ends_as_gymnasium_says_and_reset_begins_the_next() -> None:
    env = make_env(environment=Rooms, environment_kwargs={"size": 3})
    (numbers, picture, mask), info = env.reset(seed=3)
    assert numbers.tolist() in ([1, 0, 0, 0], [0, 1, 0, 0])
    assert picture[:, 0, 0].tolist() == [1, 2, 3]
    assert mask.tolist() == info["action_mask"].tolist() == [1, 1, 0]
    assert env.action_space == spaces.Discrete(3, start=5)
    assert {env.action_space.sample(info["action_mask"]) for _ in range(20)} == {5, 6}
    is_over, steps = False, int(numbers.argmax())
    while not is_over:
        (numbers, *_), reward, is_over, truncated, info = env.step(6)
        assert (reward, truncated) == (6, False)
        steps += 1
    assert steps == 2
    assert numbers.tolist() == [0, 0, 1, 0], "the last observation of the game, not the first of the next"
    assert info["metrics"] == {"rooms": 2}
    (again, *_), info = env.reset()
    assert again[:2].sum() == 1
    assert "metrics" not in info
    env.close()


def test_several_games_are_a_vector_environment_in_the_same_step() -> None:
    env = make_env(environment=Rooms, environment_kwargs={"size": 3}, count=3)
    assert isinstance(env, VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    (first, *_), info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [[1, 1, 0]] * 3
    begun = first.argmax(1)
    assert set(begun) == {0, 1}, "seeds 1, 2 and 3 are different games"
    observations, rewards, terminated, _, info = env.step([6, 6, 6])
    assert observations in env.observation_space
    assert rewards.tolist() == [6, 6, 6]
    assert terminated.tolist() == (begun == 1).tolist() == info["_final_obs"].tolist()
    for one, ends in zip(info["final_obs"], terminated, strict=True):
        assert (one is None) is not ends
        assert one is None or one[0].tolist() == [0, 0, 1, 0]
    assert info["final_info"]["metrics"]["rooms"][terminated].tolist() == [2] * terminated.sum()
    assert observations[0][terminated][:, :2].sum() == terminated.sum(), "there the next games have begun"
    env.close()


def test_actions_are_those_that_the_preset_uses_by_the_numbers_of_the_game() -> None:
    one, many = make_env("pong-a3c"), make_env("pong-a3c", count=2)
    assert {one.action_space.sample() for _ in range(30)} == {0, 2, 3}
    assert {*np.ravel([many.action_space.sample() for _ in range(30)])} == {0, 2, 3}
    assert 1 not in one.action_space
    one.reset(seed=1)
    with pytest.raises(ValueError, match=r"\[1\].*\[0, 2, 3\]"):
        one.step(1)
    seen, _ = many.reset(seed=1)
    assert seen.dtype == np.uint8
    assert many.step(many.action_space.sample())[0] in many.observation_space
    for env in (one, many):
        env.close()


def test_actions_lead_back_to_those_of_an_agent() -> None:
    low, high = np.array([-2, 0], np.float32), np.array([2, 5], np.float32)
    real = np.array([[-2, 0], [1.5, 5], [0, 2.5]], np.float32)
    for actions, native in (
        (DiscreteActions(3, numbers=np.array([7, 2, 4])), np.array([4, 7, 2])),
        (MultiDiscreteActions((2, 3), (1, 0), (2, 1), np.dtype(np.int8)), np.array([[[2], [0]], [[1], [2]]])),
        (BoxActions(low, high), real),
    ):
        with row(actions):
            np.testing.assert_allclose(actions.native(actions.of_native(native)), native, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("kind", ["run folder", "run without a checkpoint", "checkpoint", "exported policy"])
def test_a_path_is_taken_as_load_policy_takes_it(kind: str, as_text: bool, tmp_path: Path) -> None:
    run = with_settings(CARTPOLE, {"environment.max_episode_steps": 3}, source="test")
    place = tmp_path / "run"
    (place / "checkpoints").mkdir(parents=True)
    (place / "run.toml").write_text(run.to_toml())
    if kind != "run without a checkpoint":
        path = checkpoint(place / "checkpoints" / "checkpoint-000000000007.safetensors", run)
        place = path if kind == "checkpoint" else place
    if kind == "exported policy":
        place = tmp_path / "policy"
        assert rl_eval(["--checkpoint", str(path), "--episodes", "1", "--export", str(place)]) == 0
    env = make_env(str(place) if as_text else place)
    env.reset(seed=1)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    if kind != "run without a checkpoint":
        seen, _ = env.reset(seed=1)
        assert load_policy(place).act(seen) in env.action_space


def test_a_policy_has_the_scores_of_rl_eval_in_one_game_and_in_several(policy: Policy, tmp_path: Path) -> None:
    for greedy in (False, True):
        flags = ["--seed", "7", "--json", str(tmp_path / "result.json"), *(["--greedy"] if greedy else [])]
        rl_eval(["--checkpoint", str(tmp_path / "some.safetensors"), *flags])
        theirs = msgspec.json.decode((tmp_path / "result.json").read_bytes(), type=Result)
        assert evaluate(policy, greedy=greedy, seed=7) == theirs
        assert evaluate(policy, make_env(policy, count=16), greedy=greedy, seed=7).scores == theirs.scores
        assert evaluate(policy, seed=8).scores != theirs.scores
    result = evaluate(policy, episodes=5, greedy=True, seed=7)
    assert result.low is not None
    assert result.low <= result.mean
    many = make_env(policy, count=5)
    assert sorted(evaluate(policy, many, episodes=5, greedy=True, seed=7).scores) == sorted(result.scores)
    with gymnasium.make("CartPole-v1") as one:
        alone = evaluate(policy, one, episodes=2, greedy=True, seed=7)
        assert alone.scores[0] in result.scores
        one.reset()  # it was left open


def test_an_environment_that_resets_a_step_later_is_refused(policy: Policy) -> None:
    with pytest.raises(SettingsError, match="SAME_STEP"):
        evaluate(policy, gymnasium.make_vec("CartPole-v1", 2))
    with pytest.raises(SettingsError, match="episodes=0"):
        evaluate(policy, episodes=0)


def test_only_what_is_used_is_loaded() -> None:
    script = "import sys, ps_rl; print([name for name in ('torch', 'gymnasium', 'zmq') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
