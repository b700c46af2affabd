"""A policy that is taken away: its folder, how it plays there, and the network as ONNX."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.run_folder.policy_file import MODEL
from ps_common.settings.run_settings import run_from_dict, with_settings
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import (
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    packed_space,
)
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.cli import evaluate
from rl_eval.export import NewFolder
from rl_eval.games import Player
from rl_eval.policy import load_policy
from rl_eval.policy_folder import read_model, write_model
from rl_eval.spaces_record import PolicySpaces, SpacesRecord, from_record, to_record
from tests.rl_agent.observation_spaces import numbers, pixels
from tests.rl_eval.test_cli import ALWAYS_RIGHT, CARTPOLE, STEP, VALUES, checkpoint, weights_of

BOX = BoxActions(np.float32([-1, -np.inf]), np.float32([1, np.inf]))


def a_run(**sections: Any) -> RunSpec:
    return run_from_dict({"seed": 3, **sections}, source="test")


def exported(folder: Path, run: RunSpec, spaces: PolicySpaces) -> Any:
    """Writes a fresh network as a policy; returns its agent."""
    agent = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    network = FlatNetwork(agent.network)
    folder.mkdir(exist_ok=True)
    write_model(folder / MODEL, run, network.schema, network.weights, spaces, global_steps=5, minutes=0.1)
    return agent


@pytest.fixture
def policy_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder that `rl-eval --export` makes of a checkpoint."""
    path = checkpoint(tmp_path / "checkpoint.safetensors")
    folder = tmp_path / "policy"
    assert evaluate(["--checkpoint", str(path), "--episodes", "5", "--export", str(folder)]) == 0
    assert f"policy: {folder}" in capsys.readouterr().out
    return folder


def test_a_policy_has_weights_settings_a_card_and_a_receipt(policy_folder: Path) -> None:
    assert {path.name for path in policy_folder.iterdir()} == {MODEL, "settings.toml", "README.md", "receipt.json"}
    card = (policy_folder / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert f"after {STEP:,} steps" in card
    assert "5 full games, sampled actions" in card
    assert str(policy_folder.parent) not in card + (policy_folder / "receipt.json").read_text()


class Simulator(gymnasium.Env[Any, Any]):
    """It takes a key, as a simulator in a cloud does."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, api_key: str = "", size: int = 0) -> None:
        self.api_key = api_key

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_nothing_that_is_made_to_be_passed_on_has_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "sk-not-a-real-one"
    settings = {"environment.id": f"{__name__}:Simulator", "environment.kwargs": {"api_key": secret, "size": 3}}
    run = with_settings(CARTPOLE, settings | {"environment.max_episode_steps": 0}, source="test")
    path = checkpoint(tmp_path / "checkpoint.safetensors", run)
    assert secret in path.read_bytes().decode(errors="replace"), "a resume needs it"
    folder, receipt = tmp_path / "policy", tmp_path / "receipt.json"
    typed = ["--checkpoint", str(path), "--import", __name__, "--episodes", "2"]
    assert evaluate([*typed, "--export", str(folder), "--receipt", str(receipt)]) == 0
    printed = capsys.readouterr()
    texts = {file.name: file.read_bytes().decode(errors="replace") for file in (receipt, *folder.iterdir())}
    for name, text in (texts | {"out": printed.out, "err": printed.err}).items():
        assert secret not in text, name
    assert "size" in texts["README.md"], texts["README.md"]
    assert load_policy(folder).act(np.zeros(2, np.float32)) in (0, 1)
    assert evaluate(["--verify", str(receipt), "--import", __name__]) == 0


def test_a_policy_plays_as_its_checkpoint_does_and_its_receipt_verifies(
    policy_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in (policy_folder, policy_folder / MODEL, policy_folder.parent / "checkpoint.safetensors"):
        evaluate(["--checkpoint", str(source), "--episodes", "5"])
    assert len({line for line in capsys.readouterr().out.splitlines() if "mean" in line}) == 1
    assert evaluate(["--verify", str(policy_folder / "receipt.json")]) == 0


def test_a_loaded_method_of_action_values_explores_as_rl_eval_does_not_as_in_training(tmp_path: Path) -> None:
    """The run is at its first steps, where training's ε is 1."""
    policy = load_policy(checkpoint(tmp_path / "x.safetensors", VALUES, weights_of(VALUES, **ALWAYS_RIGHT), steps=0))
    taken = [policy.act(np.zeros(4, np.float32)) for _ in range(2000)]
    assert np.mean(np.equal(taken, 0)) == pytest.approx(0.025, abs=0.02)


def test_a_loaded_policy_acts_as_the_agent_does_without_any_environment(policy_folder: Path) -> None:
    policy = load_policy(policy_folder)
    environments = make_environments(CARTPOLE.environment, count=1)
    agent = build_agent(CARTPOLE, environments, device=torch.device("cpu"), seed=0)
    FlatNetwork(agent.network).load(read_model(policy_folder).weights)
    player = Player(agent, environments, greedy=True, seed=5)
    observation = make_environments(CARTPOLE.environment, count=1).reset(5)[0]
    for _ in range(30):
        decision = player.decide()
        assert policy.act(observation, greedy=True) == decision.actions[0]
        observation = player.take(decision).observations[0]
    environments.close()


def test_many_games_are_played_side_by_side_as_each_is_alone(tmp_path: Path) -> None:
    spaces = PolicySpaces(numbers(3), BOX)
    exported(tmp_path, a_run(network={"hidden": [8], "lstm": 4, "initialization": "normal"}), spaces)
    alone, many = load_policy(tmp_path), load_policy(tmp_path)
    seen = np.float32([[1, 1, 1], [0.5, -1, 2]])
    first = many.act(seen, greedy=True)
    assert many.value(seen).shape == (2,)
    second = many.act(seen, greedy=True)
    for game in range(2):
        alone.reset()
        np.testing.assert_allclose(alone.act(seen[game], greedy=True), first[game], rtol=1e-5)
        value = alone.value(seen[game])
        assert alone.value(seen[game]) == value, "the memory stays as it is"
        np.testing.assert_allclose(alone.act(seen[game], greedy=True), second[game], rtol=1e-5)
    many.reset([True, False])
    third = many.act(seen, greedy=True)
    np.testing.assert_allclose(third[0], first[0], rtol=1e-5)
    assert (np.abs(third[1] - first[1]) > 1e-4).any(), "the second game goes on"
    with pytest.raises(ValueError, match="the policy remembers 2 games, and here are 1"):
        many.act(seen[0])
    with pytest.raises(ValueError, match=r"`ended` has shape \(3,\)"):
        many.reset([True, False, True])
    with pytest.raises(ValueError, match="only single choices have a probability each"):
        many.probabilities(seen)


def test_the_parts_of_many_observations_are_packed_as_those_of_each(tmp_path: Path) -> None:
    parts = packed_space([("vector", (5,), np.float32), ("image", (1, 9, 9), np.uint8), ("mask", (2,), np.uint8)])
    exported(tmp_path, a_run(), PolicySpaces(parts, DiscreteActions(2)))
    policy = load_policy(tmp_path)
    vector, image = np.float32([np.arange(5), np.ones(5)]), np.full((2, 1, 9, 9), 7, np.uint8)
    masks = np.array([[0, 3], [1, 0]])
    many = policy.probabilities([vector, image, masks])
    np.testing.assert_allclose(many, [[0, 1], [1, 0]], atol=1e-6)
    np.testing.assert_array_equal(policy.act([vector, image, masks]), [1, 0])
    np.testing.assert_allclose(policy.probabilities([vector[0], image[0], masks[0]]), many[0], atol=1e-6)
    with pytest.raises(ValueError, match="the parts are of 2, 1, 2 observations"):
        policy.act([vector, image[:1], masks])
    with pytest.raises(ValueError, match=r"the image does not fit .*bytes from 0 to 255"):
        policy.act([vector, image / 255, masks])


@pytest.mark.parametrize(
    "spaces",
    [
        PolicySpaces(numbers(3), BOX),
        PolicySpaces(pixels(4, 42, 42), DiscreteActions(2, ("LEFT", "RIGHT"))),
        PolicySpaces(
            packed_space([("vector", (5,), np.float32), ("image", (1, 9, 9), np.uint8), ("mask", (5,), np.uint8)]),
            MultiDiscreteActions((2, 3)),
        ),
    ],
    ids=["Box", "Atari", "packed"],
)
def test_spaces_come_back_as_they_were(tmp_path: Path, spaces: PolicySpaces) -> None:
    settings = Environment()
    record = to_record(spaces)
    assert (
        to_record(from_record(msgspec.json.decode(msgspec.json.encode(record), type=SpacesRecord), settings)) == record
    )
    exported(tmp_path, a_run(), spaces)
    policy = load_policy(tmp_path)
    assert policy.observations == spaces.observations
    seen = np.ones(spaces.observations.shape, spaces.observations.dtype)
    assert policy.act(seen).shape == np.shape(spaces.actions.sample(np.random.default_rng(0), 1)[0])


def test_a_policy_takes_the_scale_of_observations_along_and_not_that_of_returns(tmp_path: Path) -> None:
    """It acts as the agent does, whose statistics have seen other numbers than those it began with."""
    spaces = PolicySpaces(numbers(3), BOX)
    run = a_run(network={"hidden": [8], "normalization": "running"}, algorithm={"reward_normalization": "returns"})
    agent = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    network = FlatNetwork(agent.network)
    names = {spec.name for spec in network.schema.specs if spec.role == "statistic"}
    assert "returns.squares" in names
    for name, view in network.schema.views(network.weights).items():
        if name.endswith(("squares", "count")):
            view.fill_(100.0 if name.endswith("count") else 900.0)
    write_model(tmp_path / MODEL, run, network.schema, network.weights, spaces, global_steps=5, minutes=0.1)
    kept = {spec.name for spec in read_model(tmp_path).schema.specs}
    assert names - kept == {f"returns.{name}" for name in ("center", "count", "total", "squares")}
    seen = np.float32([1, -2, 3])
    starts = torch.tensor([True])
    expected = agent.act(torch.from_numpy(seen[None]), agent.initial_state(1), starts, greedy=True).actions[0]
    np.testing.assert_array_equal(load_policy(tmp_path).act(seen, greedy=True), expected.numpy())


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail() -> None:
        with NewFolder(tmp_path / "policy") as place:
            (place / "a").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


# -- ONNX -------------------------------------------------------------------------------------------------------------


def test_a_network_that_cannot_become_onnx_is_refused_before_the_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint(tmp_path / "some.safetensors")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr("rl_eval.cli.play", lambda *_, **__: pytest.fail("a game"))
    with pytest.raises(SettingsError, match=r"^--onnx: .*onnxscript.*\[onnx\]"):
        evaluate(["--checkpoint", str(path), "--onnx", "--export", str(tmp_path / "policy")])


def test_a_policy_with_an_own_torso_says_what_it_needs_and_plays_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_settings(CARTPOLE, {"network.name": "examples.network:ResidualTorso"}, source="test")
    path = str(checkpoint(tmp_path / "own.safetensors", run=run))
    games = ["--checkpoint", path, "--import", "examples.network", "--episodes", "2"]
    with pytest.raises(SettingsError, match=r"trains examples.network:ResidualTorso, .*; .* add --import examples"):
        evaluate(["--checkpoint", path])
    assert evaluate([*games, "--export", str(tmp_path / "policy")]) == 0
    card = (tmp_path / "policy" / "README.md").read_text()
    assert "not part of ps-rl: `examples.network:ResidualTorso`" in card
    assert 'load_policy(".", imports=["examples.network"])' in card
    assert "rl-eval --checkpoint . --import examples.network" in card
    with pytest.raises(SettingsError, match=r"trained with examples.network:.* imports=\['examples.netw"):
        load_policy(tmp_path / "policy")
    policy = load_policy(tmp_path / "policy", imports=["examples.network"])
    assert policy.act(np.zeros(4, np.float32)).shape == ()
    capsys.readouterr()
    assert evaluate([*games[2:], "--checkpoint", str(tmp_path / "policy")]) == 0
    assert "of 2 full games" in capsys.readouterr().out
