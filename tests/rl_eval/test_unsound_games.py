"""A game with a number that nothing can be learned from has no score: evaluation says so, and training goes on."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ps_common.errors import PsRlError
from ps_common.protocol.messages import Episode
from rl_agent.play.games import play
from rl_eval.gifs import GifRecorder
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


class Shown(ScriptedEnvironments):
    def screen(self) -> Any:
        return torch.zeros(8, 8, 3, dtype=torch.uint8).numpy()


def test_training_goes_on_without_the_gif_of_such_a_game(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    actor: Any = ScriptedActor()
    actor.network, actor.begin_unroll = torch.nn.Linear(1, 1), lambda _: None
    recorder = GifRecorder(lambda: (actor, Shown([BAD])), tmp_path, every_episodes=1, seed=0)
    with caplog.at_level(logging.WARNING):
        recorder.add([Episode(1.0, 3)], torch.zeros(2), global_steps=9)
    assert "the environment: environment 0 returned the reward nan in step 3 of its game" in caplog.text
    assert list(tmp_path.iterdir()) == []
