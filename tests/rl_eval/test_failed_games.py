"""Games of an environment that fails: they are played again, and the result says so."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from ps_common.errors import PsRlError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Beside, play, summary
from rl_eval.scores import RandomPlay, print_result


class Raises(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each step number 60, 120, … of all environments fails."""

    steps = 0

    def step(self, action: Any) -> Any:
        Raises.steps += 1
        return self.fail() if Raises.steps % 60 == 0 else self.env.step(action)

    def fail(self) -> Any:
        raise OSError("the simulator is gone")


class ReturnsNan(Raises):
    def fail(self) -> Any:
        return self.observation_space.sample(), float("nan"), False, False, {}


def results(most_failures: float, wrapper: type = Raises) -> Any:
    settings = Environment(id="CartPole-v1", wrapper=(f"{__name__}:{wrapper.__name__}",), most_failures=most_failures)
    beside, Raises.steps = Beside(), 0
    with closing(make_environments(settings, count=4, forgives=True)) as environments:
        actor = RandomPlay(environments, seed=1)
        games = list(play(actor, environments, episodes=12, greedy=False, seed=1, beside=beside))
    return summary(games, environment=settings.id, greedy=False, beside=beside)


@pytest.mark.parametrize("wrapper", [Raises, ReturnsNan])
def test_a_game_that_a_failure_cuts_off_is_played_again_and_counted_apart(
    wrapper: type, capsys: pytest.CaptureFixture[str]
) -> None:
    result = results(1.0, wrapper)
    assert result.episodes == len(result.scores) == 12
    assert result.failed >= 2
    assert np.isfinite(result.scores).all()
    assert result.metrics["true_return"] == pytest.approx(result.mean), "without the games that failed"
    print_result(result)
    assert f"{result.failed} games of an environment that failed did not count" in capsys.readouterr().out


def test_an_environment_that_fails_too_often_ends_the_evaluation() -> None:
    with pytest.raises(PsRlError, match=r"--most-failures 0\.01"):
        results(most_failures=0.01)
