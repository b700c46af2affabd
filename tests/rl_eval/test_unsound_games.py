"""A game with a number that nothing can be learned from has no score: evaluation says so."""

import math
from typing import Any

import pytest

from ps_common.errors import PsRlError
from rl_eval.games import play
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments

BAD = Game((1.0, 1.0, math.nan), "terminated")
SENTENCE = "my_pkg:Bad: environment 1 returned the reward nan in step 3 of its game: the game has no score"


def bad_games() -> ScriptedEnvironments:
    environments = ScriptedEnvironments([Game((0.0,) * 9, "terminated")], [Game((1.0, 1.0), "terminated"), BAD])
    environments.description = {"environment": "my_pkg:Bad"}
    return environments


def test_evaluation_names_the_environment_and_the_step() -> None:
    actor: Any = ScriptedActor()
    with pytest.raises(PsRlError, match=f"^{SENTENCE}$"):
        list(play(actor, bad_games(), episodes=4, greedy=True, seed=0))


def test_an_observation_that_is_not_finite_is_found_at_the_reset() -> None:
    class Blind(ScriptedEnvironments):
        def reset(self, seed: int) -> Any:
            return super().reset(seed) + math.nan

    with pytest.raises(PsRlError, match="environment 0 returned an observation that holds nan when it was reset"):
        list(play(ScriptedActor(), Blind([BAD]), episodes=1, greedy=True, seed=0))
