"""Which network is built for which observations, how it begins, and that it begins alike for all workers of a run."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.errors import SettingsError
from common.run_spec import Network, RunSpec
from rl_worker.agent import build_agent
from rl_worker.networks import PixelsToUnit, policy_value_network
from tests.rl_worker.scripted_environments import Game, ScriptedEnvironments


def network_for(shape: tuple[int, ...], *, name: str = "auto", hidden: tuple[int, ...] = ()) -> nn.Module:
    settings = Network(name=name, hidden=hidden)  # type: ignore[arg-type]
    return policy_value_network(settings, shape, pixels=len(shape) == 3, actions=5)


def linear(inputs: int, outputs: int) -> int:
    """Parameters of a dense layer."""
    return inputs * outputs + outputs


# The paper's network: 16 filters of 8×8, stride 4: 84 → 20; 32 of 4×4, stride 2: 20 → 9; 256 units; the two heads.
CONV84 = linear(4 * 8 * 8, 16) + linear(16 * 4 * 4, 32) + linear(32 * 9 * 9, 256) + linear(256, 5) + linear(256, 1)


def mlp(size: int, *widths: int) -> int:
    layers = sum(linear(before, after) for before, after in zip((size, *widths), widths, strict=False))
    return layers + linear(widths[-1], 5) + linear(widths[-1], 1)


def conv42(*widths: int) -> int:
    """42 → 20 → 9 → 4"""
    convolutions = linear(4 * 4 * 4, 16) + linear(16 * 4 * 4, 32) + linear(32 * 3 * 3, 32)
    return convolutions + mlp(32 * 4 * 4, *widths)


@pytest.mark.parametrize(
    ("shape", "name", "hidden", "parameters"),
    [
        ((4, 84, 84), "auto", (), CONV84),
        ((4, 84, 84), "conv84", (), CONV84),
        ((4, 42, 42), "auto", (), conv42(256)),
        ((4, 42, 42), "conv42", (), conv42(256)),
        ((4, 42, 42), "auto", (10, 20), conv42(10, 20)),
        ((4,), "auto", (), mlp(4, 64, 64)),
        ((4,), "auto", (7,), mlp(4, 7)),
        ((2, 3), "auto", (7, 8, 9), mlp(6, 7, 8, 9)),
        ((4, 84, 84), "mlp", (10,), mlp(4 * 84 * 84, 10)),
        ((4, 30, 30), "auto", (10,), mlp(4 * 30 * 30, 10)),
    ],
)
def test_the_network_is_the_named_one_or_the_one_that_suits(
    shape: tuple[int, ...], name: str, hidden: tuple[int, ...], parameters: int
) -> None:
    network = network_for(shape, name=name, hidden=hidden)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    observations = torch.zeros(3, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)
    logits, values = network(observations)
    assert (logits.shape, values.shape) == ((3, 5), (3,))
    assert (logits.dtype, values.dtype) == (torch.float32, torch.float32)


@pytest.mark.parametrize(
    ("shape", "name"), [((4, 42, 42), "conv84"), ((4, 84, 84), "conv42"), ((4,), "conv84"), ((84, 84), "conv84")]
)
def test_a_network_for_other_observations_is_refused(shape: tuple[int, ...], name: str) -> None:
    with pytest.raises(SettingsError, match=f"^--network {name}: "):
        network_for(shape, name=name)


def test_pixels_are_scaled_to_the_unit_interval_and_left_as_they_were() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    torch.testing.assert_close(PixelsToUnit()(pixels), torch.tensor([0.0, 0.2, 1.0]))
    assert pixels.tolist() == [0, 51, 255]


def test_a_network_of_pixels_sees_them_scaled() -> None:
    torch.manual_seed(0)
    of_pixels = policy_value_network(Network(hidden=(8,)), (6,), pixels=True, actions=5)
    torch.manual_seed(0)
    of_numbers = policy_value_network(Network(hidden=(8,)), (6,), pixels=False, actions=5)
    pixels = torch.randint(256, (10, 6), dtype=torch.uint8)
    for seen, expected in zip(of_pixels(pixels), of_numbers(pixels / 255), strict=True):
        torch.testing.assert_close(seen, expected)


def gain(weight: Tensor) -> float:
    """g of an orthogonal weight, for which W Wᵀ = g² I, or Wᵀ W when it is tall; NaN when it is not orthogonal."""
    flat = weight.detach().flatten(1).double()
    product = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    square = float(product[0, 0])
    alike = torch.allclose(product, square * torch.eye(len(product), dtype=torch.float64), atol=1e-5)
    return math.sqrt(square) if alike else math.nan


@pytest.mark.parametrize("shape", [(4, 84, 84), (4, 42, 42), (4,)])
def test_weights_begin_orthogonal_with_the_gain_of_their_place_and_biases_at_zero(shape: tuple[int, ...]) -> None:
    parameters = dict(network_for(shape).named_parameters())
    biases = [parameter for name, parameter in parameters.items() if name.endswith("bias")]
    assert len(biases) == len(parameters) / 2
    assert all(not bias.any() for bias in biases)
    gains = {name: gain(parameter) for name, parameter in parameters.items() if name.endswith("weight")}
    assert gains.pop("policy.weight") == pytest.approx(0.01, rel=1e-3)
    assert gains.pop("value.weight") == pytest.approx(1.0)
    assert gains.values()
    assert all(found == pytest.approx(math.sqrt(2)) for found in gains.values()), gains


def test_a_fresh_policy_is_nearly_uniform() -> None:
    torch.manual_seed(0)
    logits, _ = network_for((4,))(torch.randn(100, 4))
    assert float((logits.detach().softmax(-1) - 0.2).abs().max()) < 0.03


def first_weights(run_seed: int | None, *, worker_seed: int) -> Tensor:
    environments = ScriptedEnvironments([Game((0.0,), "terminated")])
    agent = build_agent(RunSpec(seed=run_seed), environments, device=torch.device("cpu"), seed=worker_seed)
    return nn.utils.parameters_to_vector(agent.network.parameters()).detach()


def test_all_workers_of_a_run_with_a_seed_begin_with_the_same_weights() -> None:
    weights = first_weights(3, worker_seed=1)
    assert torch.equal(weights, first_weights(3, worker_seed=2))
    assert not torch.equal(weights, first_weights(4, worker_seed=1))


def test_without_a_seed_the_first_weights_are_by_chance() -> None:
    assert not torch.equal(first_weights(None, worker_seed=1), first_weights(None, worker_seed=1))


def test_the_agent_fits_its_environment() -> None:
    environments = ScriptedEnvironments([Game((0.0,), "terminated")])
    agent = build_agent(RunSpec(seed=3), environments, device=torch.device("cpu"), seed=1)
    choice = agent.act(torch.zeros(2, *environments.observation_shape))
    assert choice.actions.shape == (2,)
    assert agent.network.policy.weight.shape[0] == 4  # type: ignore[union-attr, index]
    environments.observation_dtype = np.dtype(np.uint8)
    pixels = build_agent(RunSpec(seed=3), environments, device=torch.device("cpu"), seed=1)
    assert any(isinstance(module, PixelsToUnit) for module in pixels.network.modules())
