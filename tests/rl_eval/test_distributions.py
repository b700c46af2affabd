"""`policy.distribution` tells how `policy.act` samples, and evaluated SAC never plays at random."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ps_common.run_folder.policy_file import MODEL
from ps_common.settings.run_settings import run_from_dict
from rl_agent.agent import build_agent, trained_agent
from rl_agent.environments.spaces import BoxActions, DiscreteActions, MultiDiscreteActions, packed_space
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.policy import Policy, load_policy
from rl_eval.policy_folder import write_model
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers
from tests.rows import row

LOW, HIGH = np.float32([-2, 0, 1]), np.float32([2, 1, 5])
SAMPLES = 4000


def a_policy(folder: Path, spaces: PolicySpaces, **sections: Any) -> Policy:
    run = run_from_dict({"seed": 3, "network": {"hidden": [8], "initialization": "normal"}} | sections, source="test")
    agent = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    network = FlatNetwork(agent.network)
    write_model(folder / MODEL, run, network.schema, network.weights, spaces, global_steps=5, minutes=0.0)
    return load_policy(folder)


@pytest.mark.parametrize("name", ["a3c", "sac"])
def test_actions_have_the_mean_and_standard_deviation_that_the_policy_tells(tmp_path: Path, name: str) -> None:
    # Without bounds nearby, what A3C samples is what the environment gets.
    low, high = (np.float32([-1e6] * 3), np.float32([1e6] * 3)) if name == "a3c" else (LOW, HIGH)
    spaces = PolicySpaces(numbers(4), BoxActions(low, high, (3,)))
    policy = a_policy(tmp_path, spaces, algorithm={"name": name})
    seen = np.float32([0.1, -0.5, 1, 0])
    told = policy.distribution(seen)
    assert told.probabilities is None
    assert told.mean is not None
    assert told.standard_deviation is not None
    assert told.mean.shape == told.standard_deviation.shape == (3,)
    assert told.is_squashed == (name == "sac")
    taken = policy.act(np.stack([seen] * SAMPLES)).astype(np.float64)
    if told.is_squashed:
        taken = np.arctanh(((taken - LOW) / (HIGH - LOW) * 2 - 1).clip(-1 + 1e-6, 1 - 1e-6))
    error = 5 * told.standard_deviation / np.sqrt(SAMPLES)
    assert (np.abs(taken.mean(0) - told.mean) < error).all()
    np.testing.assert_allclose(taken.std(0), told.standard_deviation, rtol=0.1)
    mean = told.mean if not told.is_squashed else LOW + (HIGH - LOW) * (np.tanh(told.mean) + 1) / 2
    np.testing.assert_allclose(policy.act(seen, greedy=True), mean, rtol=1e-4, atol=1e-5)
    many = policy.distribution(np.stack([seen] * 2)).mean
    assert many is not None
    np.testing.assert_allclose(many, [told.mean] * 2, rtol=1e-5)


def test_discrete_choices_are_told_by_their_probabilities(tmp_path: Path) -> None:
    seen = np.ones(3, np.float32)
    single = a_policy(tmp_path, PolicySpaces(numbers(3), DiscreteActions(3)))
    np.testing.assert_array_equal(single.distribution(seen).probabilities, single.probabilities(seen))
    several = a_policy(tmp_path, PolicySpaces(numbers(3), MultiDiscreteActions((2, 3))))
    told = several.distribution(seen).probabilities
    assert isinstance(told, tuple)
    taken = several.act(np.stack([seen] * SAMPLES))
    for choice, chances in enumerate(told):
        shares = np.bincount(taken[:, choice], minlength=len(chances)) / SAMPLES
        np.testing.assert_allclose(shares, chances, atol=0.05)
    values = a_policy(tmp_path, PolicySpaces(numbers(3), DiscreteActions(3)), algorithm={"name": "dqn"})
    chances = values.distribution(seen).probabilities
    assert isinstance(chances, np.ndarray)
    assert chances.max() == pytest.approx(0.95 + 0.05 / 3, abs=1e-5)


@pytest.mark.parametrize("name", ["a3c", "sac"])
def test_a_masked_number_is_told_as_nothing(tmp_path: Path, name: str) -> None:
    parts = packed_space([("vector", (2,), np.float32), ("mask", (3,), np.uint8)])
    policy = a_policy(tmp_path, PolicySpaces(parts, BoxActions(LOW, HIGH)), algorithm={"name": name})
    told = policy.distribution([np.ones(2), [1, 0, 1]])
    assert told.mean is not None
    assert told.standard_deviation is not None
    assert told.mean[1] == told.standard_deviation[1] == 0
    assert (told.standard_deviation[[0, 2]] > 0).all()


def test_evaluated_sac_plays_with_its_policy_however_few_its_steps_are() -> None:
    """In warm-up an action is anything within its bounds, and near the mean in the policy of these weights."""
    spaces = PolicySpaces(numbers(2), BoxActions(np.float32([-1]), np.float32([1])))
    run = run_from_dict(
        {"seed": 3, "algorithm": {"name": "sac"}, "network": {"hidden": [4]}, "replay": {"learning_starts": 5000}},
        source="test",
    )
    network = FlatNetwork(build_agent(run, spaces, device=torch.device("cpu"), seed=0).network)
    weights = network.weights
    views = network.schema.views(weights)
    views["policy.head.2.weight"].zero_()
    views["policy.head.2.bias"].copy_(torch.tensor([0.5, -10.0]))  # mean, and the logarithm of the standard deviation
    seen, starts = torch.zeros(200, 2), torch.ones(200, dtype=torch.bool)
    for steps in (0, 4999, 5000):
        with row(steps):
            agent = trained_agent(run, spaces, network.schema, weights, global_steps=steps, seed=1, origin="test")
            for _ in range(2):
                taken = agent.act(seen, (), starts).actions
                np.testing.assert_allclose(taken, np.tanh(0.5), atol=0.01)
                agent.begin_unroll(steps)
    parts = packed_space([("vector", (2,), np.float32), ("mask", (1,), np.uint8)])
    masked = build_agent(run, PolicySpaces(parts, spaces.actions), device=torch.device("cpu"), seed=0)
    masked.begin_unroll(0)
    forbidden = torch.zeros(200, *parts.shape, dtype=torch.uint8)
    assert (masked.act(forbidden, (), starts).actions == 0).all(), "warm-up heeds a mask, too"
    in_training = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    in_training.begin_unroll(0)
    assert in_training.act(seen, (), starts).actions.std() > 0.4
