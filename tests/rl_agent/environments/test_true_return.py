"""The score below wrappers that change rewards."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from ps_common.settings.run_spec import Environment
from rl_agent.environments.any_gymnasium import TRUE_RETURN
from rl_agent.environments.make import closing, make_environments

LIMIT = 7


class Halved(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return float(reward) / 2


@pytest.mark.parametrize("step_in", ["turn", "threads", "processes"])
def test_the_sum_below_the_wrappers_is_a_metric_of_each_game_however_it_ends(step_in: Any) -> None:
    settings = Environment(id="CartPole-v1", wrapper=(f"{__name__}:Halved",), max_episode_steps=LIMIT, step_in=step_in)
    returns, lengths = np.zeros(2), []
    with closing(make_environments(settings, count=2)) as environments:
        environments.reset(1)
        for _ in range(3 * LIMIT):
            stepped = environments.step(np.array([0, 1]))
            returns += stepped.rewards
            for row, metrics in stepped.metrics.items():
                assert metrics[TRUE_RETURN] == 2 * returns[row]
                lengths.append(2 * returns[row])
                returns[row] = 0.0
    assert len(lengths) >= 4
