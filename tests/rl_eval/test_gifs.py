"""When the first worker records a GIF, with which weights; and that training survives a broken disk."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from ps_common.errors import RequestRefused, RunEnded, ServerUnreachable
from ps_common.protocol.messages import Episode
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval import gifs
from rl_eval.gifs import GifRecorder

SETTINGS = Environment(id="CartPole-v1", max_episode_steps=5)
GAME = Episode(5.0, 5)


class Trial:
    """A recorder that makes one every 25 games, and the weights it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environments = make_environments(SETTINGS, count=1, with_screen=True)
        agent = build_agent(RunSpec(environment=SETTINGS), environments, device=torch.device("cpu"), seed=0)
        self.agent = agent
        self.weights = torch.zeros_like(FlatNetwork(agent.network).weights)
        self.made = 0
        self.recorder = GifRecorder(lambda: self.make(agent, environments), folder, every_episodes=25, seed=1)

    def make(self, agent: Algorithm, environments: Environments) -> tuple[Algorithm, Environments]:
        self.made += 1
        torch.manual_seed(7)  # as agents of a run with a seed do
        return agent, environments

    def add(self, episodes: int, *, global_steps: int) -> None:
        self.recorder.add([GAME] * episodes, self.weights, global_steps=global_steps)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


def test_a_gif_is_made_after_every_25_games(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "gifs")
    trial.add(24, global_steps=100)
    assert trial.names() == []
    assert trial.made == 0, "most workers never make one"
    trial.add(1, global_steps=200)
    assert trial.names() == ["game-000000000200.gif"]
    trial.add(0, global_steps=300)
    trial.add(24, global_steps=400)
    assert len(trial.names()) == 1
    trial.add(60, global_steps=500)
    assert trial.names() == ["game-000000000200.gif", "game-000000000500.gif"], "one at a time, however many ended"
    assert trial.made == 1


def test_the_random_numbers_of_training_do_not_notice(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    trial.add(25, global_steps=1)
    assert torch.equal(torch.rand(3), expected)


def test_it_is_played_with_the_weights_that_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Tensor] = []
    trial = Trial(tmp_path)

    def record(agent: Any, *_: object, **__: object) -> None:
        played.append(FlatNetwork(agent.network).weights.clone())

    monkeypatch.setattr(gifs, "record_gif", record)
    trial.weights = torch.arange(float(len(trial.weights)))
    trial.add(25, global_steps=0)
    assert torch.equal(played[0], trial.weights)


@pytest.mark.parametrize("ended", [RunEnded("over"), ServerUnreachable("gone"), RequestRefused("left", "gone")])
def test_the_end_of_the_run_ends_the_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Exception) -> None:
    trial = Trial(tmp_path)
    monkeypatch.setattr(trial, "make", Mock(side_effect=ended))
    with pytest.raises(type(ended)):
        trial.add(25, global_steps=7)


def test_a_game_that_cannot_be_drawn_is_told_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path)
    monkeypatch.setattr(gifs, "record_gif", Mock(side_effect=ValueError("no such colour")))
    trial.add(25, global_steps=7)
    assert "no game was recorded, training continues without it: ValueError: no such colour" in caplog.text


def test_a_disk_that_takes_no_gif_is_told_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    trial = Trial(tmp_path / "file" / "gifs")
    trial.add(25, global_steps=7)
    (warning,) = caplog.records
    assert "game-000000000007.gif: cannot be written, training continues without it" in warning.getMessage()
