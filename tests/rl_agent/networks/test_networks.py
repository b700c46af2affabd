"""The network for given observations, and its initial weights, which are the same for all workers of a run."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import NetworkSettings, RunSpec
from rl_agent.agent import build_agent
from rl_agent.networks.networks import ActionValueNetwork, PolicyValueNetwork
from rl_agent.networks.normalization import PixelsToUnit
from tests.rl_agent.observation_spaces import numbers, pixels
from tests.rl_agent.scripted_environments import Game, ScriptedEnvironments
from tests.rows import row


def network_for(shape: tuple[int, ...], *, name: str = "auto", hidden: tuple[int, ...] = (), **more: Any) -> nn.Module:
    settings = NetworkSettings(name=name, hidden=hidden, **more)  # type: ignore[arg-type]
    return PolicyValueNetwork(settings, (pixels if len(shape) == 3 else numbers)(*shape), policy_parameters=5)


def outputs_of(network: nn.Module, observations: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and values of single observations [N, ...]."""
    starts = torch.ones(1, len(observations), dtype=torch.bool)
    state = network.initial_state(len(observations), torch.device("cpu"))  # type: ignore[operator]
    logits, values, _ = network(observations[None], state, starts)
    return logits[0], values[0]


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


# 40 → 9
SHALLOW40 = linear(4 * 8 * 8, 16) + mlp(16 * 9 * 9, 256)
# 84 → 20 → 9 → 7
NATURE84 = linear(4 * 8 * 8, 32) + linear(32 * 4 * 4, 64) + linear(64 * 3 * 3, 64) + mlp(64 * 7 * 7, 512)
# 42 → 21 → 11 → 6 → 3, and the heads at once
UNIVERSE42 = linear(4 * 3 * 3, 32) + 3 * linear(32 * 3 * 3, 32) + linear(32 * 9, 5) + linear(32 * 9, 1)


def test_the_network_is_the_named_one_or_the_one_that_suits() -> None:
    for shape, name, hidden, parameters in [
        ((4, 84, 84), "auto", (), CONV84),
        ((4, 84, 84), "conv84", (), CONV84),
        ((4, 42, 42), "auto", (), conv42(256)),
        ((4, 42, 42), "conv42", (), conv42(256)),
        ((4, 42, 42), "auto", (10, 20), conv42(10, 20)),
        ((4, 40, 40), "shallow40", (), SHALLOW40),
        ((4, 40, 40), "auto", (), SHALLOW40),
        ((4, 84, 84), "nature84", (), NATURE84),
        ((4, 42, 42), "universe42", (), UNIVERSE42),
        ((4, 10, 10), "auto", (), linear(4 * 3 * 3, 16) + mlp(16 * 8 * 8, 128)),
        ((4,), "auto", (), mlp(4, 64, 64)),
        ((4,), "auto", (7,), mlp(4, 7)),
        ((2, 3), "auto", (7, 8, 9), mlp(6, 7, 8, 9)),
        ((4, 84, 84), "mlp", (10,), mlp(4 * 84 * 84, 10)),
        ((4, 30, 30), "mlp", (10,), mlp(4 * 30 * 30, 10)),
        ((4, 30, 30), "auto", (10,), linear(4 * 3 * 3, 32) + linear(32 * 3 * 3, 32) + mlp(32 * 8 * 8, 10)),
        # 64 → 16 → 8, and 210 × 20 → 53 × 5 → 27 × 3 → 14 × 2 → 7 × 1
        ((3, 64, 64), "auto", (10,), linear(3 * 7 * 7, 16) + linear(16 * 3 * 3, 32) + mlp(32 * 8 * 8, 10)),
        (
            (3, 210, 20),
            "auto",
            (10,),
            linear(3 * 7 * 7, 16) + linear(16 * 3 * 3, 32) + 2 * linear(32 * 3 * 3, 32) + mlp(32 * 7 * 1, 10),
        ),
    ]:
        with row(shape, name, hidden, parameters):
            network = network_for(shape, name=name, hidden=hidden)
            assert sum(parameter.numel() for parameter in network.parameters()) == parameters
            observations = torch.zeros(3, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)
            logits, values = outputs_of(network, observations)
            assert (logits.shape, values.shape) == ((3, 5), (3,))
            assert (logits.dtype, values.dtype) == (torch.float32, torch.float32)


def test_a_network_for_other_observations_is_refused() -> None:
    for shape, name in [
        ((4, 42, 42), "conv84"),
        ((4, 84, 84), "conv42"),
        ((1, 84, 84), "shallow40"),
        ((4,), "conv84"),
        ((84, 84), "conv84"),
    ]:
        with row(shape, name), pytest.raises(SettingsError, match=f"^--network {name}: "):
            network_for(shape, name=name)


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


def test_the_agent_fits_its_environment() -> None:
    environments = ScriptedEnvironments([Game((0.0,), "terminated")])
    agent = build_agent(RunSpec(seed=3), environments, device=torch.device("cpu"), seed=1)
    observations = torch.zeros(2, *environments.observations.shape)
    decision = agent.act(observations, agent.initial_state(2), torch.ones(2, dtype=torch.bool))
    assert decision.actions.shape == (2,)
    assert agent.network.policy.weight.shape[0] == 4  # type: ignore[union-attr, index]
    environments.observations = pixels(3)
    of_pixels = build_agent(RunSpec(seed=3), environments, device=torch.device("cpu"), seed=1)
    assert any(isinstance(module, PixelsToUnit) for module in of_pixels.network.modules())


# -- the options of the [network] section -----------------------------------------------------------------------------


def test_separate_torsos_share_nothing() -> None:
    """The gradient of the value reaches no parameter of the policy, and the other way round."""
    network = network_for((4,), hidden=(7,), separate=True)
    assert sum(parameter.numel() for parameter in network.parameters()) == (
        linear(4, 7) + linear(7, 5) + linear(4, 7) + linear(7, 1)
    )
    logits, values = outputs_of(network, torch.randn(6, 4))
    for output, own in ((logits.square().sum(), ("branch.", "policy.")), (values.sum(), ("value_branch.", "value."))):
        network.zero_grad()
        output.backward()
        reached = [name for name, p in network.named_parameters() if p.grad is not None and p.grad.any()]
        assert reached
        assert all(name.startswith(own) for name in reached)


@pytest.mark.parametrize("initialization", ["xavier", "normal", "normalized_columns"])
def test_initialisations_are_what_their_names_say(initialization: str) -> None:
    torch.manual_seed(0)
    network = network_for((100,), hidden=(200,), initialization=initialization)
    parameters = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layer = parameters["branch.torso.1.weight"]
    if initialization == "normal":
        assert float(layer.std()) == pytest.approx(0.1, rel=0.02)
        assert float(parameters["value.weight"].std()) == pytest.approx(0.1, rel=0.2)
    else:  # uniform between ± √(6 / (in + out))
        bound = math.sqrt(6 / (100 + 200))
        assert float(layer.abs().max()) == pytest.approx(bound, rel=0.01)
        assert float(layer.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    if initialization == "normalized_columns":
        torch.testing.assert_close(parameters["policy.weight"].norm(dim=1), torch.full((5,), 0.01))
        torch.testing.assert_close(parameters["value.weight"].norm(dim=1), torch.ones(1))


@pytest.mark.parametrize("shape", [(4,), (4, 10, 10)])
def test_layer_norm_makes_the_sums_of_each_layer_alike_whatever_their_scale(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = ActionValueNetwork(NetworkSettings(layer_norm=True), numbers(*shape), actions=3)
    observations = torch.randn(6, *shape)
    torch.testing.assert_close(network(observations), network(1000 * observations), rtol=1e-3, atol=1e-3)
