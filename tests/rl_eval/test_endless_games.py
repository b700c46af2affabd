"""Games that never end by themselves: an evaluation ends at a limit of steps, says so, and takes no more memory."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ps_common.errors import PsRlError, SettingsError
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from ps_rl import evaluation, load_policy, make_env
from ps_rl.evaluation import evaluate
from rl_agent.environments.make import closing, make_environments, with_time_limit
from rl_eval import cli, games
from rl_eval.cli import evaluate as rl_eval
from rl_eval.games import MOST_GAME_STEPS, play
from rl_eval.scores import RandomPlay
from tests.rl_eval.test_cli import checkpoint
from tests.rows import row

LIMIT = 60


class Endless(gymnasium.Env[Any, Any]):
    """Pays 1 a step."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, False, False, {}


def vectors(*, num_envs: int) -> Any:
    return SyncVectorEnv([Endless] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def run_of(name: str) -> RunSpec:
    return run_from_dict({"environment": {"id": f"{__name__}:{name}"}, "network": {"hidden": [4]}}, source="test")


def a_checkpoint(tmp_path: Path, name: str = "Endless") -> str:
    return str(checkpoint(tmp_path / "some.safetensors", run_of(name)))


def scores(tmp_path: Path, *flags: str, name: str = "Endless") -> list[float]:
    result = tmp_path / "result.json"
    at = ["--checkpoint", a_checkpoint(tmp_path, name), "--import", __name__, "--json", str(result)]
    assert rl_eval([*at, "--episodes", "5", *flags]) == 0
    found: list[float] = json.loads(result.read_text())["scores"]
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that a test reaches."""
    for module in (cli, evaluation, games):
        monkeypatch.setattr(module, "MOST_GAME_STEPS", LIMIT)


@pytest.mark.usefixtures("short")
def test_each_evaluation_ends_at_the_limit_of_games_that_have_none(tmp_path: Path) -> None:
    for flags in ([], ["--greedy"], ["--baselines"], ["--receipt", str(tmp_path / "receipt.json")]):
        with row(flags):
            assert scores(tmp_path, *flags) == [LIMIT] * 5
    assert rl_eval(["--verify", str(tmp_path / "receipt.json"), "--import", __name__]) == 0
    assert scores(tmp_path, "--export", str(tmp_path / "policy")) == [LIMIT] * 5
    assert "max_episode_steps = 0" in (tmp_path / "policy" / "settings.toml").read_text(), "the run had no limit"
    assert rl_eval(["--verify", str(tmp_path / "policy" / "receipt.json"), "--import", __name__]) == 0
    for policy in (load_policy(a_checkpoint(tmp_path), imports=[__name__]), load_policy(tmp_path / "policy")):
        assert evaluate(policy, Endless(), episodes=3).scores == [LIMIT] * 3
    policy = load_policy(a_checkpoint(tmp_path), imports=[__name__])
    assert evaluate(policy, make_env(environment=Endless), episodes=3).scores == [LIMIT] * 3


def test_the_limit_is_that_of_the_run_else_of_the_environment_else_the_general_one() -> None:
    for id, of_run, given, expected in (
        ("CartPole-v1", 0, None, (0, 500)),
        ("CartPole-v1", 30, None, (30, 30)),
        ("CartPole-v1", 30, 10, (10, 10)),
        ("CartPole-v1", 0, 600, (600, 600)),
        (f"{__name__}:Endless", 0, None, (MOST_GAME_STEPS, MOST_GAME_STEPS)),
        (f"{__name__}:Endless", 12, None, (12, 12)),
        (f"{__name__}:vectors", 0, None, (0, MOST_GAME_STEPS)),
        ("ALE/Pong-v5", 0, None, (0, 108_000)),
    ):
        with row(id, of_run, given):
            run = run_from_dict({"environment": {"id": id, "max_episode_steps": of_run}}, source="test")
            settings, steps = with_time_limit(run.environment, at_least=MOST_GAME_STEPS, given=given)
            assert (settings.max_episode_steps, steps) == expected


@pytest.mark.usefixtures("short")
def test_a_vector_environment_that_goes_on_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(PsRlError, match=r"vectors: environment 0 has not ended its game after 61 steps.*TimeLimit"):
        scores(tmp_path, name="vectors")
    policy = load_policy(a_checkpoint(tmp_path), imports=[__name__])
    with pytest.raises(PsRlError, match="has not ended its game"):
        evaluate(policy, vectors(num_envs=2), episodes=2)
    with pytest.raises(SettingsError, match="max_episode_steps"):
        evaluate(policy, vectors(num_envs=2), episodes=2, max_episode_steps=5)


def test_a_game_that_is_ten_times_as_long_takes_no_more_memory() -> None:
    peaks = []
    for steps in (100, 1_000, 10_000):
        settings, _ = with_time_limit(run_of("Endless").environment, at_least=steps)
        with closing(make_environments(settings, count=2)) as environments:
            actor = RandomPlay(environments, seed=0)
            played = play(actor, environments, episodes=2, greedy=False, seed=0, keeps_actions=False)
            tracemalloc.start()
            assert [(game.score, game.actions) for game in played] == [(steps, [])] * 2
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + 20_000
