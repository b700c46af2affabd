"""The numbers that an environment gives with its games, whatever `info` holds."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments, random_play
from rl_agent.environments.make import make_environments
from rl_agent.games import GAMES_IN_MEAN, MOST_METRICS, Games, MetricsReader
from tests.rows import row

pytestmark = pytest.mark.filterwarnings("ignore:.*share an object")  # as it may


class Raises:
    """Nothing can be done with it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("of the user")

    __repr__ = __float__ = __bool__ = __getattribute__  # type: ignore[assignment]


BAD = {
    "a text": "3", "NaN": float("nan"), "infinity": np.inf, "large": 1e31, "an endless integer": 10**9999,
    "several": np.ones(3), "nested": {"a": 1.0}, "none": None, "complex": 1j, "an object": Raises(),
}  # fmt: skip


def test_what_is_no_number_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for name, value in BAD.items():
        with row(name):
            caplog.clear()
            reader = MetricsReader()
            for _ in range(3):
                assert reader.read({"metrics": {"bad": value, "good": 1}}) == {"good": 1.0}
            assert len(caplog.records) == 1
            assert "info[\"metrics\"]: 'bad' is left out" in caplog.text
            assert "\n" not in caplog.records[0].getMessage()


def test_the_names_of_a_worker_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    reader = MetricsReader()
    first = {f"m{number}": 1.0 for number in range(MOST_METRICS)}
    assert reader.read({"metrics": first | {"more": 1.0}}) == first
    assert reader.read({"metrics": {"later": 1.0, "m3": 2.0}}) == {"m3": 2.0}
    assert len(caplog.records) == 1
    endless = {f"n{number}": 1.0 for number in range(100_000)}
    assert reader.read({"metrics": endless}) == {}


def test_a_meter_is_the_mean_over_the_newest_games() -> None:
    games, ended = Games(1), np.array([True])
    for number in range(GAMES_IN_MEAN + 10):
        games.stepped(0, np.zeros(1, np.float32), ended, {0: {"fuel": float(number)}})
    assert games.metrics == {}  # none is counted before the steps are pushed
    games.take()
    assert games.metrics == {"metrics/fuel": 10 + (GAMES_IN_MEAN - 1) / 2}


def test_a_failed_game_has_no_metrics() -> None:
    games, one = Games(1), np.array([True])
    games.stepped(0, np.zeros(1, np.float32), one, {0: {"fuel": 1.0}}, failed=one)
    games.take()
    assert games.metrics == {}


class Counted(gymnasium.Env[Any, Any]):
    """Games of three steps, whose `info` is one object that each step and reset overwrites."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.info: dict[str, Any] = {"metrics": {}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = self.info["metrics"]["steps"] = self.info["is_success"] = 0
        return np.zeros(1, np.float32), self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.info["metrics"]["steps"] = self.t
        self.info["is_success"] = self.t == 3
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, self.info


def counted_together(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Counted] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def environments_of(name: str, **settings: Any) -> Environments:
    return make_environments(Environment(id=f"{__name__}:{name}", **settings), count=2)


@pytest.mark.parametrize("name", ["Counted", "counted_together"])
def test_the_last_step_of_a_game_gives_its_metrics(name: str) -> None:
    environments = environments_of(name)
    steps = random_play(environments, seed=1)
    assert [next(steps).metrics for _ in range(2)] == [{}, {}]
    assert next(steps).metrics == {game: {"steps": 3.0, "is_success": 1.0} for game in range(2)}
    environments.close()
