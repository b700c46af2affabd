"""The panel beside a game: what it shows, and that recordings have it on request."""

from pathlib import Path

import imageio.v3
import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms.algorithm import Prediction
from rl_agent.environments.interface import Screen
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import ActionSpace
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.rollouts import Decision
from rl_eval import recording
from rl_eval.cli import evaluate
from rl_eval.games import Player
from rl_eval.recording import PANEL_WIDTH, with_overlay
from tests.rl_eval.test_cli import CARTPOLE, checkpoint
from tests.rl_eval.test_receipt import PENDULUM, PONG
from tests.rl_eval.test_recording import screens_of

SCREEN = np.full((210, 160, 3), 7, dtype=np.uint8)


def panel(
    probabilities: list[float] | None, action: int | list[float], actions: ActionSpace, *, value: float = 1.0
) -> Screen:
    shares = None if probabilities is None else torch.tensor([probabilities])
    prediction, decision = Prediction(torch.tensor([value]), shares), Decision(torch.tensor([action]), (), {})
    frame = with_overlay(SCREEN, actions, score=3.0, prediction=prediction, decision=decision)
    assert (frame[:420, :320] == 7).all(), "the game itself is enlarged and otherwise as it was"
    assert frame.shape[1] == 320 + PANEL_WIDTH
    return frame[:, 320:]


Q = run_from_dict(CARTPOLE.to_dict() | {"algorithm": {"name": "one_step_q"}}, source="test")


@pytest.mark.parametrize("run", [CARTPOLE, Q], ids=["A3C", "Q"])
def test_the_prediction_has_the_probabilities_by_which_actions_are_drawn(run: RunSpec) -> None:
    environments = make_environments(run.environment, count=2000)
    agent = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    FlatNetwork(agent.network).weights.mul_(3)
    agent.begin_unroll(10**9)
    observations: Tensor = torch.from_numpy(environments.reset(1))[:1].expand(2000, -1)
    starts, state = torch.ones(2000, dtype=torch.bool), agent.initial_state(2000)
    prediction = agent.predict(observations, state, starts)
    taken = agent.act(observations, state, starts).actions
    environments.close()
    assert prediction.values.shape == (2000,)
    assert prediction.probabilities is not None
    assert prediction.probabilities.sum(-1) == pytest.approx(1, abs=1e-5)
    assert float(taken.float().mean()) == pytest.approx(float(prediction.probabilities[:, 1].mean()), abs=0.05)


def test_looking_changes_no_game() -> None:
    def actions(look: bool) -> list[list[int]]:
        environments = make_environments(CARTPOLE.environment, count=2)
        agent = build_agent(CARTPOLE, environments, device=torch.device("cpu"), seed=0)
        player = Player(agent, environments, greedy=False, seed=1)
        taken = []
        for _ in range(20):
            decision = player.decide()
            if look:
                agent.predict(*player.grounds)
            player.take(decision)
            taken.append(decision.actions.tolist())
        return taken

    assert actions(True) == actions(False)


@pytest.mark.parametrize(
    ("run", "height", "width"),
    [(CARTPOLE, 200, 460), (PONG, 420, 480), (PENDULUM, 250, 410)],
    ids=["pole", "pong", "box"],
)
def test_recordings_have_the_panel_on_request(run: RunSpec, height: int, width: int, tmp_path: Path) -> None:
    path, video, gif = checkpoint(tmp_path / "some.safetensors", run), tmp_path / "game.mp4", tmp_path / "game.gif"
    flags = [
        "--checkpoint",
        path,
        "--episodes",
        1,
        "--overlay",
        "--video",
        video,
        "--gif",
        gif,
        "--receipt",
        tmp_path / "r",
    ]
    assert evaluate([str(flag) for flag in flags]) == 0
    frames = screens_of(video, height=height, width=width)
    assert 7 <= len(frames) <= run.environment.max_episode_steps
    assert all(frame[:, -recording.PANEL_WIDTH :].std() > 5 for frame in frames), "a panel is empty"
    assert imageio.v3.imread(gif).shape[1:] == (height, width, 3)
