"""What an agent predicts of its next action, as the live game shows it."""

import pytest
import torch
from torch import Tensor

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.games import Player
from tests.rl_eval.test_cli import CARTPOLE
from tests.rl_eval.test_receipt import PONG

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


def test_atari_names_its_actions() -> None:
    environments = make_environments(PONG.environment, count=1)
    assert isinstance(environments.actions, DiscreteActions)
    assert environments.actions.names == ("NOOP", "RIGHT", "LEFT")
    environments.close()
