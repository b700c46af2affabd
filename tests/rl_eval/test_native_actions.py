"""What a loaded policy returns is what the environment takes."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from ps_common.run_folder.policy_file import MODEL
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.gymnasium_spaces import ActionCodec
from rl_agent.environments.spaces import ActionSpace
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.policy import Policy, load_policy
from rl_eval.policy_folder import write_model
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers
from tests.rows import row

ROOT = Path(__file__).parents[2]
SEEN = np.ones(3, np.float32)


def a_run(**environment: Any) -> RunSpec:
    return run_from_dict({"seed": 3, "environment": environment, "network": {"hidden": [8]}}, source="test")


def exported(folder: Path, run: RunSpec, actions: ActionSpace) -> tuple[Policy, Any]:
    """A fresh network, written and loaded again, and its agent."""
    spaces = PolicySpaces(numbers(3), actions)
    agent = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    network = FlatNetwork(agent.network)
    write_model(folder / MODEL, run, network.schema, network.weights, spaces, global_steps=5, minutes=0.1)
    return load_policy(folder), agent


def of_space(folder: Path, space: Space[Any], settings: dict[str, Any]) -> tuple[Policy, Any, ActionCodec]:
    """The same for a Gymnasium space, and its codec."""
    codec = ActionCodec(Environment(id="X-v0", **settings), space)
    return *exported(folder, a_run(id="X-v0", **settings), codec.actions), codec


def test_a_loaded_policy_returns_what_the_environment_gets_of_its_agent(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for space, settings in [
        (Discrete(4, start=-2), {}),
        (Discrete(4, start=10), {"actions": (3, 1)}),
        (MultiDiscrete([[2, 2], [2, 3]], start=[[5, 0], [0, 7]]), {}),
        (MultiBinary([2, 3]), {}),
        (Box(-0.1, 0.1, (2, 2), np.float64), {}),
        (Box(np.float32([-np.inf, 0]), np.float32([0.5, np.inf])), {}),
    ]:
        with row(space, settings):
            tmp_path = tmp_path_factory.mktemp("row")
            policy, agent, codec = of_space(tmp_path, space, settings)
            for _ in range(50):
                taken = policy.act(SEEN)
                decision = agent.act(torch.from_numpy(SEEN[None]), (), torch.tensor([False]))
                assert space.contains(taken)
                assert taken.dtype == space.dtype
                np.testing.assert_array_equal(taken, codec.actions.native(decision.actions.numpy())[0])


def test_an_action_can_be_given_to_step_of_a_gymnasium_environment(tmp_path: Path) -> None:
    """Taxi looks the number up in a dictionary, which takes no array."""
    game = gymnasium.make("Taxi-v4")
    game.reset(seed=0)
    actions = ActionCodec(Environment(id="Taxi-v4"), game.action_space).actions
    game.step(exported(tmp_path, a_run(id="Taxi-v4"), actions)[0].act(SEEN))
    game.close()


def test_the_policies_of_the_zoo_return_the_actions_of_their_games() -> None:
    pong, pendulum = load_policy(ROOT / "zoo/pong"), load_policy(ROOT / "zoo/inverted-pendulum")
    seen = np.random.default_rng(0).integers(0, 256, (200, *pong.observations.shape), np.uint8)
    taken = {int(pong.act(one)) for one in seen}
    assert taken <= {0, 2, 3}
    assert 3 in taken, "LEFT, the last of three"
    pushes = [pendulum.act(np.float32([0, 1.5, 0, 7.5])) for _ in range(1000)]
    assert {push.shape for push in pushes} == {(1,)}
    assert max(pushes) == 3, "its bound; some samples lie beyond it"
