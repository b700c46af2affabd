"""The network as ONNX gets what the environment shows, by its keys, and computes what the policy does."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from torch import nn

from ps_common.run_folder.policy_file import MODEL
from ps_common.settings.run_settings import run_from_dict
from rl_agent.agent import build_agent
from rl_agent.environments.gymnasium_spaces import ActionCodec, ObservationReader
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.card_program import onnx_program
from rl_eval.onnx_file import write_onnx
from rl_eval.policy import load_policy
from rl_eval.policy_folder import write_model
from rl_eval.spaces_record import PolicySpaces
from tests.rows import nightly, row

CAMERA = Box(0, 255, (16, 12, 3), np.uint8)
ROBOT = Dict(camera=CAMERA, joints=Box(-5, 5, (6,)), arm=Dict(open=MultiBinary(2), tool=Discrete(3, start=1)))
MANY = Tuple([MultiDiscrete([2, 3]), Box(0, 9, (17, 16)), Box(0, 255, (2, 9, 9, 1), np.uint8), Box(-1, 1, (2, 2))])
REAL = Box(np.float32([-2, 0]), np.float32([2, 9]))
MASKED: dict[str, Any] = {"masks": "key"}
ROWS: dict[str, tuple[Space[Any], Space[Any], dict[str, Any], list[str]]] = {
    "a3c of a robot": (ROBOT, REAL, {}, ["joints", "arm.open", "arm.tool", "camera"]),
    "sac of a robot": (ROBOT, REAL, {"algorithm": {"name": "sac"}}, ["joints", "arm.open", "arm.tool", "camera"]),
    "sac of a matrix": (
        Dict(values=Box(-1, 1, (3,)), linear=Box(-1, 1, (2,))),
        Box(-3, 1, (2, 1)),
        {"algorithm": {"name": "sac"}},
        ["observations.values", "linear"],
    ),
    "dqn of a Tuple": (MANY, Discrete(4), {"algorithm": {"name": "dqn", "dueling": True}}, ["0", "3", "1", "2"]),
    "quantiles": (Dict(n=Discrete(5)), Discrete(2), {"algorithm": {"name": "dqn", "quantiles": 5}}, ["n"]),
    "LSTM": (Dict(camera=CAMERA, joints=Box(-5, 5, (6,))), REAL, {"network": {"lstm": 5}}, ["joints", "camera"]),
    "a mask of some actions": (
        Dict(seen=Box(-1, 1, (4,)), action_mask=MultiBinary(5)),
        Discrete(5),
        MASKED | {"environment": {"actions": [4, 1]}},
        ["seen", "action_mask"],
    ),
    "a mask of choices": (
        Dict(seen=Box(-1, 1, (4,)), action_mask=MultiBinary(5)), MultiDiscrete([2, 3]), MASKED, ["seen", "action_mask"],
    ),
    "a mask of SAC": (
        Dict(seen=Box(-1, 1, (4,)), action_mask=MultiBinary(2)),
        REAL,
        MASKED | {"algorithm": {"name": "sac"}},
        ["seen", "action_mask"],
    ),
}  # fmt: skip
OFTEN = ("a3c of a robot", "dqn of a Tuple", "LSTM")  # an export takes a second


def given_by(named: dict[str, str], keys: list[str], observation: Any, space: Any) -> dict[str, Any]:
    """The inputs for one observation."""
    given = {}
    for key in keys:
        value: Any = observation
        for step in key.removeprefix("observations.").split("."):
            value = value[int(step) if step.isdigit() else step]
        dtype = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}.get(
            named[key], np.int8
        )
        given[key] = np.asarray(value, dtype)[None]
    return given


Written = Callable[[str], tuple[Path, nn.Module, PolicySpaces, Space[Any]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The folder of a row's policy, with its model.onnx; each is written once, for seconds."""
    return cache(lambda name: write(tmp_path_factory.mktemp("policy"), name))


def write(folder: Path, name: str) -> tuple[Path, nn.Module, PolicySpaces, Space[Any]]:
    space, acts, sections, _ = ROWS[name]
    sections = dict(sections)
    masks = sections.pop("masks", "none")
    base = {"hidden": [8], "initialization": "normal"} | sections.get("network", {})
    run = run_from_dict({"seed": 3} | sections | {"network": base}, source="test")
    codec = ActionCodec(run.environment, acts)
    spaces = PolicySpaces(ObservationReader(space, codec, masks=masks).array_space, codec.actions)
    agent = build_agent(run, spaces, device=torch.device("cpu"), seed=0)
    network = FlatNetwork(agent.network)
    write_model(folder / MODEL, run, network.schema, network.weights, spaces, global_steps=5, minutes=0.0)
    write_onnx(folder / "model.onnx", agent.network, spaces.observations, spaces.actions)
    return folder, agent.network, spaces, space


@pytest.mark.parametrize("name", [name if name in OFTEN else nightly(name) for name in ROWS])
def test_onnx_computes_of_a_raw_observation_what_the_policy_does(written: Written, name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    folder, _, spaces, space = written(name)
    policy = load_policy(folder)
    keys, masks = ROWS[name][3], ROWS[name][2].get("masks")
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    named = {one.name: one.type for one in session.get_inputs()}
    assert list(named)[: len(keys)] == keys
    space.seed(7)
    state = {one.name: np.zeros((1, one.shape[1]), np.float32) for one in session.get_inputs() if "state_" in one.name}
    for number in range(6):
        with row(number):
            observation = space.sample()
            if number == 0 and masks == "key":
                observation["action_mask"][:] = 0
            given = given_by(named, keys, observation, space)
            given |= ({"starts": np.array([number == 0])} | state) if state else {}
            outputs = session.run(None, given)
            state = dict(zip(state, outputs[2:], strict=True))
            if session.get_outputs()[0].name == "actions":
                np.testing.assert_allclose(outputs[0][0], policy.act(observation, greedy=True), rtol=1e-4, atol=1e-5)
                continue
            told, is_q = policy.distribution(observation), session.get_outputs()[0].name == "action_values"
            if not is_q:
                np.testing.assert_allclose(outputs[1][0], policy.value(observation), rtol=1e-4, atol=1e-5)
            if told.mean is not None:
                np.testing.assert_allclose(outputs[0][0, : told.mean.size], told.mean.ravel(), rtol=1e-4, atol=1e-5)
            elif isinstance(told.probabilities, tuple):
                logits = np.split(outputs[0][0], np.cumsum(spaces.actions.counts)[:-1])  # type: ignore[union-attr]
                for part, chances in zip(logits, told.probabilities, strict=True):
                    np.testing.assert_allclose(torch.softmax(torch.from_numpy(part), -1), chances, atol=1e-5)
            elif is_q:
                np.testing.assert_allclose(outputs[0].max(), policy.value(observation), rtol=1e-4, atol=1e-5)
                assert outputs[0].argmax() == policy.act(observation, greedy=True)
            else:
                np.testing.assert_allclose(
                    torch.softmax(torch.from_numpy(outputs[0][0]), -1), told.probabilities, atol=1e-5
                )
            policy.act(observation)  # the memory moves on


@pytest.mark.parametrize("name", [*OFTEN, nightly("sac of a robot"), nightly("a mask of some actions")])
def test_the_program_on_the_card_acts_on_raw_observations_as_the_policy_does(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    folder, network, spaces, space = written(name)
    policy = load_policy(folder)
    text = onnx_program(spaces, network)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(text, names)
    assert capsys.readouterr().out.startswith("actions: ")
    if "memory" in names:
        names["memory"] = {key: np.zeros_like(state) for key, state in names["memory"].items()}
        names["memory"]["starts"] = np.array([True])
    named = {one.name: one.type for one in names["session"].get_inputs()}
    space.seed(3)
    for _ in range(3):
        observation = space.sample()
        if spaces.observations.mask is not None:
            observation["action_mask"][:] = [0, 1, 0, 0, 1]
        given = given_by(named, ROWS[name][3], observation, space)
        np.testing.assert_allclose(names["act"](given)[0], policy.act(observation, greedy=True), rtol=1e-4, atol=1e-5)
