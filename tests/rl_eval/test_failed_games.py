"""Games of an environment that raises exceptions: they are played again, and the result says so."""

from typing import Any

import gymnasium
import pytest

from ps_common.errors import PsRlError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Beside, play, summary
from rl_eval.scores import RandomPlay, print_result


class Flaky(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each step number 60, 120, … of all environments fails."""

    steps = 0

    def step(self, action: Any) -> Any:
        Flaky.steps += 1
        if Flaky.steps % 60 == 0:
            raise OSError("the simulator is gone")
        return self.env.step(action)


def results(most_failures: float) -> Any:
    settings = Environment(id="CartPole-v1", wrapper=(f"{__name__}:Flaky",), most_failures=most_failures)
    beside, Flaky.steps = Beside(), 0
    with closing(make_environments(settings, count=4, forgives=True)) as environments:
        actor = RandomPlay(environments, seed=1)
        games = list(play(actor, environments, episodes=12, greedy=False, seed=1, beside=beside))
    return summary(games, environment=settings.id, greedy=False, beside=beside)


def test_a_game_that_an_exception_cuts_off_is_played_again_and_counted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = results(most_failures=1.0)
    assert result.episodes == len(result.scores) == 12
    assert result.failed >= 2
    assert result.metrics["true_return"] == pytest.approx(result.mean), "without the games that failed"
    print_result(result)
    assert f"{result.failed} games of an environment that raised" in capsys.readouterr().out


def test_an_environment_that_fails_too_often_ends_the_evaluation() -> None:
    with pytest.raises(PsRlError, match=r"--most-failures 0\.01"):
        results(most_failures=0.01)
