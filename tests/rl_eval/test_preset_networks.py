"""The network of every preset as ONNX: the same outputs for observations of its own game, with the state carried on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ps_common.settings.run_files import load_preset, presets
from rl_agent.agent import build_agent
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.make import make_environments
from rl_agent.networks.networks import ActionValueNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.rollouts import State
from rl_eval.games import Player
from rl_eval.onnx_file import write_onnx
from tests.extras import skip_without_package

GAMES = 10
MOST_DIFFERENCE = 1e-5
MASKED = {"taxi"}  # presets whose observations have a mask, which no ONNX file reads


def outputs_of(agent: Algorithm, observations: Tensor, state: State, starts: Tensor) -> list[Tensor]:
    """The network's outputs for B observations, in the order of its ONNX file."""
    with torch.no_grad():
        if isinstance(agent.network, ActionValueNetwork):
            return [agent.network(observations)]
        parameters, values, after = agent.network(observations[None], state, starts[None])
        return [parameters[0], values[0], *after]


class Session:
    """A network in onnxruntime, which carries its own recurrent state."""

    def __init__(self, runtime: Any, path: Path, state: State) -> None:
        self._session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._state = [part.numpy() for part in state]

    def run(self, observations: Tensor, starts: Tensor) -> list[NDArray[np.float32]]:
        given = {"observations": observations.numpy()} | ({"starts": starts.numpy()} if self._state else {})
        given |= {f"state_{number}": part for number, part in enumerate(self._state)}
        outputs: list[NDArray[np.float32]] = self._session.run(None, given)
        self._state = outputs[len(outputs) - len(self._state) :]
        return outputs


def differences(preset: str, folder: Path, *, observations: int) -> Iterator[float]:
    """The largest difference of an output in each step of ten games; the games go on as the network decides."""
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    run = load_preset(preset)
    skip_without_package(run)
    torch.manual_seed(1)
    environments = make_environments(run.environment, count=GAMES)
    agent = build_agent(run, environments, device=torch.device("cpu"), seed=1)
    measure_normalization(agent.network, environments, seed=1)
    write_onnx(folder / "model.onnx", agent.network, environments.observations)
    session = Session(runtime, folder / "model.onnx", agent.initial_state(GAMES))
    player = Player(agent, environments, greedy=False, seed=1)
    for _ in range(observations // GAMES):
        seen, state, starts = player.grounds
        expected = outputs_of(agent, seen, state, starts)
        pairs = zip(session.run(seen, starts), expected, strict=True)
        yield max(float(np.abs(output - tensor.numpy()).max()) for output, tensor in pairs)
        player.take(player.decide())
    environments.close()


def test_the_network_of_pong_as_onnx_computes_the_same_in_its_games(tmp_path: Path) -> None:
    assert max(differences("pong", tmp_path, observations=100)) <= MOST_DIFFERENCE


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("preset", sorted(set(presets()) - MASKED))
def test_the_network_of_every_preset_as_onnx_computes_the_same_in_its_game(preset: str, tmp_path: Path) -> None:
    found = list(differences(preset, tmp_path, observations=1000))
    print(f"{preset}: largest difference {max(found):.1e} of {len(found) * GAMES} observations")
    assert max(found) <= MOST_DIFFERENCE
