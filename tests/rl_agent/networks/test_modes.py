"""Dropout is on where a loss is computed, and nowhere else: whatever acts, judges or is exported is deterministic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ps_common.errors import RunEnded
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.cli import evaluate
from rl_eval.onnx_file import write_onnx
from rl_eval.policy import load_policy
from rl_eval.spaces_record import PolicySpaces
from rl_worker.training import train
from tests.rl_agent.local_parameters import parameters_for
from tests.rl_agent.observation_spaces import numbers
from tests.rl_eval.test_cli import checkpoint
from tests.rows import nightly

CPU = torch.device("cpu")
TORSOS = "tests.rl_agent.dropping_torsos"
NAMES = ("Dropping", "Attending", "Noisy")
METHODS: dict[str, dict[str, Any]] = {
    "A3C": {"name": "a3c"},
    "V-trace": {"name": "a3c", "off_policy": "vtrace", "epochs": 2},
    "clip": {"name": "a3c", "surrogate": "clip", "epochs": 2, "minibatches": 2},
    "imitation": {"name": "a3c", "imitation_weight": 0.1, "imitation_samples": 2},
    "one-step Q": {"name": "one_step_q", "target_interval": 30},
    "Sarsa": {"name": "one_step_sarsa", "target_interval": 30},
    "n-step Q": {"name": "n_step_q", "epochs": 2, "minibatches": 2},
}


def run_with(torso: str, method: str = "A3C", **network: Any) -> RunSpec:
    return run_from_dict(
        {
            "environment": {"id": "CartPole-v1", "max_episode_steps": 30},
            "network": {"name": f"{TORSOS}:{torso}"} | network,
            "algorithm": METHODS[method] | {"unroll_length": 12},
            "seed": 1,
        },
        source="test",
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_network_is_in_training_mode_where_it_is_differentiated_and_only_there(method: str) -> None:
    run = run_with("Dropping", method)
    environments = make_environments(run.environment, count=3)
    agent = build_agent(run, environments, device=CPU, seed=0)
    modes: set[tuple[bool, bool]] = set()

    def called(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        modes.add((module.training, torch.is_grad_enabled()))

    for network in filter(None, (agent.network, agent.target_network)):
        for module in network.modules():
            module.register_forward_pre_hook(called)
    flat = FlatNetwork(agent.network)
    parameters = parameters_for(flat, learning_rate=1e-3, updates=20, target_interval=30)
    with pytest.raises(RunEnded):
        train(parameters, flat, collector_for(agent, environments, seed=0), agent)
    environments.close()
    assert modes == {(True, True), (False, False)}


def test_the_mode_is_that_of_before_when_a_loss_fails() -> None:
    network = nn.Sequential(nn.Linear(2, 1), nn.Dropout()).eval()

    def fail() -> None:
        with FlatNetwork(network).learning():
            assert network[1].training
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not network[1].training


@pytest.mark.parametrize(("method", "lstm"), [("A3C", 0), ("A3C", 8), ("n-step Q", 0)])
@pytest.mark.parametrize("torso", NAMES)
def test_an_agent_acts_and_judges_the_same_twice(torso: str, method: str, lstm: int) -> None:
    spaces = PolicySpaces(numbers(4), DiscreteActions(2))
    agent = build_agent(run_with(torso, method, lstm=lstm), spaces, device=CPU, seed=0)
    seen, starts = torch.randn(9, 4), torch.ones(9, dtype=torch.bool)
    state = agent.initial_state(9)
    first, second = (agent.act(seen, state, starts, greedy=True) for _ in range(2))
    assert torch.equal(first.actions, second.actions)
    assert all(torch.equal(value, second.recorded[name]) for name, value in first.recorded.items() if name == "values")
    assert torch.equal(*(agent.predict(seen, state, starts).values for _ in range(2)))


def test_equal_weights_have_a_ratio_of_one_between_behaviour_and_learner() -> None:
    """V-trace and the surrogate's weights compare two policies, and not two masks of dropout."""
    run = run_with("Dropping", "clip")
    environments = make_environments(run.environment, count=3)
    agent = build_agent(run, environments, device=CPU, seed=0)
    batch = next(iter(agent.batches(collector_for(agent, environments, seed=0).collect())))
    environments.close()
    torch.testing.assert_close(batch.weights, torch.ones_like(batch.weights))
    network = FlatNetwork(agent.network)
    losses = set()
    for _ in range(3):
        with network.learning():
            losses.add(float(agent.loss(batch).total.detach()))
    assert len(losses) == 3, "learning draws a mask each time"


@pytest.mark.parametrize("torso", [NAMES[0], *map(nightly, NAMES[1:])])
def test_rl_eval_load_policy_and_onnx_play_the_same_games(
    torso: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    run = run_with(torso)
    path = checkpoint(tmp_path / "checkpoint.safetensors", run)
    games = ["--checkpoint", str(path), "--import", TORSOS, "--greedy", "--episodes", "3", "--seed", "5"]
    receipt = tmp_path / "receipt.json"
    assert evaluate([*games, "--json", str(tmp_path / "result.json"), "--receipt", str(receipt)]) == 0
    assert evaluate(["--verify", str(receipt), "--import", TORSOS]) == 0
    scores = json.loads((tmp_path / "result.json").read_text())["scores"]
    policy = load_policy(path, imports=[TORSOS])
    write_onnx(tmp_path / "model.onnx", policy._agent.network, policy.observations)
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])

    def of_onnx(seen: Any) -> int:
        return int(session.run(["parameters"], {"observations": seen[None]})[0].argmax())

    for act in (lambda seen: int(policy.act(seen, greedy=True)), of_onnx):
        assert played(run, act, seed=5) == scores[0]


def played(run: RunSpec, act: Any, *, seed: int) -> float:
    """The score of one game."""
    environments = make_environments(run.environment, count=1)
    seen, score = environments.reset(seed), 0.0
    while True:
        stepped = environments.step(np.array([act(seen[0])]))
        seen, score = stepped.observations, score + float(stepped.rewards[0])
        if stepped.terminated[0] or stepped.truncated[0]:
            environments.close()
            return score
