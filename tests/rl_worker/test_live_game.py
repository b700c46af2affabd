"""Frames of a worker's own game: what is in them, when they are made, and that learning does not notice."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ps_common.protocol.messages import Frame
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import make_environments
from rl_worker.live_game import LiveGame
from tests.rl_eval.test_cli import CARTPOLE
from tests.rl_eval.test_receipt import PENDULUM, PONG

Q = run_from_dict(CARTPOLE.to_dict() | {"algorithm": {"name": "one_step_q"}}, source="test")
SARSA = run_from_dict(CARTPOLE.to_dict() | {"algorithm": {"name": "one_step_sarsa"}}, source="test")
RECURRENT = run_from_dict(CARTPOLE.to_dict() | {"network": {"hidden": [8], "lstm": 8}}, source="test")
RUNS = {"cartpole": CARTPOLE, "pong": PONG, "pendulum": PENDULUM, "q": Q, "sarsa": SARSA, "recurrent": RECURRENT}


def played(run: RunSpec, *, watched: bool, seconds_a_decision: float = 0.05) -> tuple[list[Frame], list[torch.Tensor]]:
    """Two unrolls, and the frames that were sent meanwhile."""
    environments = make_environments(run.environment, count=2)
    torch.manual_seed(3)  # the first weights of a run without a seed
    agent = build_agent(run, environments, device=torch.device("cpu"), seed=3)
    frames: list[Frame] = []
    times = iter(np.arange(1e6) * seconds_a_decision + 1)
    game = LiveGame(agent, environments, is_watched=lambda: watched, send=frames.append, clock=lambda: next(times))
    collector = collector_for(agent, environments, seed=3, watcher=game.decided)
    unrolls = []
    for _ in range(2):
        agent.begin_unroll(0)
        unroll = collector.collect()
        unrolls.append(unroll.actions.clone())
    environments.close()
    return frames, unrolls


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_frame_has_a_picture_the_value_and_the_probabilities(run: RunSpec) -> None:
    frames, _ = played(run, watched=True)
    for frame in frames:
        picture = np.asarray(Image.open(io.BytesIO(frame.image)))
        assert picture.std() > 1, "something is to be seen"
        if run is PENDULUM:
            assert (frame.actions, frame.probabilities) == ((), ())
            assert float(frame.taken.split()[0]) == pytest.approx(0, abs=20)
        else:
            assert len(frame.actions) == len(frame.probabilities) >= 2
            assert sum(frame.probabilities) == pytest.approx(1, abs=1e-4)
            assert frame.taken in frame.actions


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_game_is_the_same_watched_or_not(run: RunSpec) -> None:
    frames, watched = played(run, watched=True)
    none, alone = played(run, watched=False)
    assert frames
    assert none == []
    for one, other in zip(watched, alone, strict=True):
        assert torch.equal(one, other)


def test_a_prediction_that_fails_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    environments = make_environments(CARTPOLE.environment, count=1)
    agent: Any = build_agent(CARTPOLE, environments, device=torch.device("cpu"), seed=3)
    asked: list[Any] = []
    agent.predict = lambda *grounds: asked.append(grounds)  # returns None
    frames: list[Frame] = []
    game = LiveGame(agent, environments, is_watched=lambda: True, send=frames.append, clock=iter(range(999)).__next__)
    collector_for(agent, environments, seed=3, watcher=game.decided).collect()
    environments.close()
    assert (frames, len(asked)) == ([], 1)
    assert caplog.text.count("this game cannot be watched: its prediction fails: AttributeError") == 1
