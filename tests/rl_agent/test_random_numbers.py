"""The generators of torch, numpy and `random`: the same weights in all workers, and other draws in each."""

import random
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, trained_agent
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.spaces import ActionSpace, DiscreteActions, ObservationSpace
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.random_numbers import derived_seed, drawing, drawing_apart
from tests.rl_agent.observation_spaces import numbers


@dataclass(frozen=True)
class Here:
    """The spaces of an agent."""

    observations: ObservationSpace = field(default_factory=lambda: numbers(4))
    actions: ActionSpace = field(default_factory=lambda: DiscreteActions(2))


HERE = Here()
TORSO = "tests.rl_agent.dropping_torsos:Dropping"


def draws() -> list[float]:
    return [torch.rand(()).item(), torch.randn(3)[2].item(), float(np.random.rand()), random.random()]


def run_of(seed: int | None) -> RunSpec:
    return run_from_dict({"seed": seed, "network": {"name": TORSO}}, source="test")


def agent_of(run_seed: int | None) -> Algorithm:
    return build_agent(run_of(run_seed), HERE, device=torch.device("cpu"), seed=0)


def worker(*whose: int) -> tuple[Tensor, Tensor, list[float]]:
    """The weights, the features of a pass in training mode, and further draws of the process of a worker."""
    with drawing_apart(derived_seed(7, *whose)):
        agent = agent_of(7)
        network = FlatNetwork(agent.network)
        with network.learning():
            features, _, _ = agent.network(torch.ones(1, 8, 4), (), torch.zeros(1, 8, dtype=torch.bool))
        return network.weights.clone(), features.detach(), draws()


WORKERS = [(0,), (1,), (0, 1), (1, 1), (0, 0, 1), (0, 1, 1)]  # number, member of its gang, earlier starts


def test_workers_have_the_same_weights_and_draw_other_numbers() -> None:
    found = [worker(*whose) for whose in WORKERS]
    for number, (weights, features, drawn) in enumerate(found):
        assert torch.equal(weights, found[0][0])
        for _, other_features, other_drawn in found[:number]:
            assert not torch.equal(features, other_features), "their dropout masks are the same"
            assert all(here != there for here, there in zip(drawn, other_drawn, strict=True))


@pytest.mark.parametrize("run_seed", [3, None])
def test_a_trained_agent_leaves_no_trace_in_what_is_drawn_afterwards(run_seed: int | None) -> None:
    """As by load_policy in a process that has seeds of its own."""
    run, network = run_of(run_seed), FlatNetwork(agent_of(run_seed).network)
    with drawing(11):
        trained_agent(run, HERE, network.schema, network.weights, global_steps=0, seed=0, origin="here")
        built = draws()
    with drawing(11):
        assert draws() == built


class Chancy(gymnasium.Env[Any, Any]):
    """Its observations are drawn from generators that belong to nobody."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array(draws()), {}


def test_the_processes_of_a_vector_environment_draw_numbers_of_their_own_that_the_seed_decides() -> None:
    seen = []
    for seed in (3, 3, 4):
        with drawing_apart(seed):
            games = gymnasium.vector.AsyncVectorEnv([Chancy] * 3, context="fork")
            seen.append(games.reset()[0])
            games.close()
    for one in (seen[0], seen[2], np.concatenate([seen[0], seen[2]])):
        assert all(len(set(column)) == len(column) for column in one.T.tolist())
    np.testing.assert_array_equal(seen[0], seen[1])
