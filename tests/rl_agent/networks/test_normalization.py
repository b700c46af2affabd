"""Normalization of pixels by random play."""

import numpy as np
import pytest
import torch

from ps_common.settings.run_spec import Environment, NetworkSettings
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.networks import PolicyValueNetwork
from rl_agent.networks.normalization import (
    LARGE_BATCH,
    SMALLEST_DEVIATION,
    RandomPlayNormalization,
    measure_normalization,
)
from rl_agent.networks.running_statistics import CLIP
from tests.rl_agent.observation_spaces import pixels

PONG = Environment(id="ALE/Pong-v5", preprocessing="atari42", actions=(0, 2, 3))


@pytest.fixture(scope="module")
def measured() -> RandomPlayNormalization:
    normalization = RandomPlayNormalization(42, 42)
    environments = make_environments(PONG, count=4)
    measure_normalization(torch.nn.Sequential(normalization), environments, seed=3)
    environments.close()
    return normalization


def test_mean_and_deviation_are_those_of_random_play(measured: RandomPlayNormalization) -> None:
    """Against a second, longer game: the numbers describe the game, not the sample."""
    environments = make_environments(PONG, count=4)
    environments.reset(77)
    random = np.random.default_rng(5)
    seen = np.concatenate([environments.step(random.integers(0, 3, 4)).observations[:, 3] for _ in range(1500)])
    environments.close()
    deviation = seen.astype(float).std(0)
    assert np.abs(measured.mean.numpy() - seen.astype(float).mean(0)).mean() < 0.5
    often = deviation > 1.25 * SMALLEST_DEVIATION
    assert often.any()
    np.testing.assert_allclose(1 / measured.scale.numpy()[often], deviation[often], rtol=0.25)
    assert float((1 / measured.scale).min()) == pytest.approx(SMALLEST_DEVIATION)


@pytest.mark.parametrize("count", [2, LARGE_BATCH])
def test_pixels_become_deviations_from_the_mean_and_are_clipped(measured: RandomPlayNormalization, count: int) -> None:
    """Few in the order they come in, many with their channels last."""
    pixels = torch.randint(0, 256, (count, 4, 42, 42), dtype=torch.uint8)
    out = measured(pixels)
    expected = (pixels.double() - measured.mean.double()) * measured.scale.double()
    torch.testing.assert_close(out.double(), expected.clamp(-CLIP, CLIP), atol=1e-4, rtol=1e-4)
    assert float(out.abs().max()) == CLIP


def test_it_travels_with_the_weights_and_is_never_trained() -> None:
    settings = NetworkSettings(name="conv42", normalization="random_play")
    network = PolicyValueNetwork(settings, pixels(4, 42, 42), policy_parameters=3)
    flat = FlatNetwork(network)
    statistics = [spec.name for spec in flat.schema.specs if spec.role == "statistic"]
    assert statistics == ["branch.torso.0.mean", "branch.torso.0.scale"]
    seen = torch.randint(0, 256, (1, 5, 4, 42, 42), dtype=torch.uint8)
    logits, values, _ = network(seen, (), torch.zeros(1, 5, dtype=torch.bool))
    gradient, _ = flat.gradient_of(logits.square().sum() + values.sum(), clip=0)
    assert not gradient[flat.schema.weights :].any()
    assert gradient[: flat.schema.weights].any()
