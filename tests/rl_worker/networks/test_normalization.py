"""Normalization of observations, by random play and by running statistics."""

import numpy as np
import pytest
import torch
from torch import Tensor

from common.errors import SettingsError
from common.settings.run_spec import Environment, Network, SgdSettings
from ps_server.state.optimizers import optimizer_for
from ps_server.state.weight_store import WeightStore
from rl_worker.environments.make import make_environments
from rl_worker.networks.flat_network import FlatNetwork
from rl_worker.networks.networks import PolicyValueNetwork
from rl_worker.networks.normalization import (
    CLIP,
    LARGE_BATCH,
    MOST_COUNTED,
    SMALLEST_DEVIATION,
    RandomPlayNormalization,
    RunningNormalization,
    measure_normalization,
    observe,
)
from tests.rl_worker.observation_spaces import numbers, pixels
from tests.rl_worker.scripted_environments import Game, ScriptedEnvironments

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
    settings = Network(name="conv42", normalization="random_play")
    network = PolicyValueNetwork(settings, pixels(4, 42, 42), policy_parameters=3)
    flat = FlatNetwork(network)
    statistics = [spec.name for spec in flat.schema.specs if spec.role == "statistic"]
    assert statistics == ["branch.torso.0.mean", "branch.torso.0.scale"]
    seen = torch.randint(0, 256, (1, 5, 4, 42, 42), dtype=torch.uint8)
    logits, values, _ = network(seen, (), torch.zeros(1, 5, dtype=torch.bool))
    gradient, _ = flat.gradient_of(logits.square().sum() + values.sum(), clip=0)
    assert not gradient[flat.schema.weights :].any()
    assert gradient[: flat.schema.weights].any()


def test_what_has_no_pixels_cannot_be_normalised_by_random_play() -> None:
    with pytest.raises(SettingsError, match="--normalization random_play"):
        PolicyValueNetwork(Network(normalization="random_play"), numbers(4), policy_parameters=2)


# -- running normalisation --------------------------------------------------------------------------------------------

SIZE = 3


class Worker:
    """A network with a running normalisation in front, as one worker has it."""

    def __init__(self) -> None:
        self.normalization = RunningNormalization(SIZE)
        self.network = torch.nn.Sequential(self.normalization, torch.nn.Linear(SIZE, 1))
        self.flat = FlatNetwork(self.network)

    def push_to(self, store: WeightStore, seen: Tensor) -> None:
        """Pull, observe, learn, push."""
        self.flat.load(store.flat)
        observe(self.network, seen)
        gradient, _ = self.flat.gradient_of(self.network(seen).square().sum(), clip=1.0)
        store.apply(gradient, 0.01)


def seen_by(seed: int, *, mean: float = 0.0, deviation: float = 1.0, count: int = 50) -> Tensor:
    return mean + deviation * torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed))


def started(first: Tensor) -> tuple[WeightStore, list[Worker]]:
    """Two workers, of which the first has seeded the run with what it saw in random play."""
    workers = [Worker(), Worker()]
    workers[0].normalization.measure(first)
    schema = workers[0].flat.schema
    return WeightStore(schema, workers[0].flat.weights, optimizer_for(SgdSettings(), schema.weights)), workers


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1000.0, 0.5), (-3.0, 200.0)])
def test_the_scale_is_that_of_all_that_all_workers_have_seen(mean: float, deviation: float) -> None:
    """Also far from zero. The second half is seen at another place than the first: the scale follows."""
    batches = [seen_by(seed, mean=mean + (seed > 20) * deviation, deviation=deviation) for seed in range(40)]
    store, workers = started(batches[0])
    for turn, seen in enumerate(batches[1:]):
        workers[turn % 2].push_to(store, seen)
    everything = torch.cat(batches).double()
    late = Worker()
    late.flat.load(store.flat)
    assert float(late.normalization.count) == len(everything)
    expected = (everything - everything.mean(0)) / everything.std(0, correction=0)
    found = late.normalization(torch.cat(batches))
    torch.testing.assert_close(found.double(), expected.clamp(-CLIP, CLIP), atol=2e-3, rtol=2e-3)


def test_what_was_observed_is_pushed_once_and_the_weights_do_not_feel_it() -> None:
    _, (worker, _) = started(seen_by(0))
    observe(worker.network, seen_by(1))
    observe(worker.network, seen_by(2))
    loss = worker.network[1].weight.sum()  # type: ignore[union-attr, operator]
    first, norm = worker.flat.gradient_of(loss, clip=0.5)
    added = worker.flat.schema.views(first.clone())
    seen = torch.cat([seen_by(1), seen_by(2)]) - worker.normalization.center
    assert float(added["0.count"]) == 100
    torch.testing.assert_close(added["0.total"], seen.sum(0))
    torch.testing.assert_close(added["0.squares"], seen.square().sum(0))
    assert not added["0.center"].any()
    assert norm == pytest.approx(3**0.5), "what is added to statistics is not part of the norm, and is never clipped"
    second, _ = worker.flat.gradient_of(worker.network[1].weight.sum(), clip=0)  # type: ignore[union-attr, operator]
    assert not second[worker.flat.schema.weights :].any()


def test_acting_and_learning_use_the_scale_that_came_with_the_weights() -> None:
    _, (worker, _) = started(seen_by(0))
    before = worker.normalization(seen_by(1))
    observe(worker.network, seen_by(2, mean=50.0))
    assert torch.equal(worker.normalization(seen_by(1)), before)


def test_after_enough_observations_the_scale_stays() -> None:
    store, (worker, _) = started(seen_by(0))
    store.flat[store.schema.weights :] *= MOST_COUNTED / 50
    statistics = store.flat[store.schema.weights :].clone()
    assert float(worker.flat.schema.views(store.flat)["0.count"]) == MOST_COUNTED
    worker.push_to(store, seen_by(1, mean=7.0))
    assert torch.equal(store.flat[store.schema.weights :], statistics)


def test_a_number_that_never_changes_is_zero_and_not_blown_up() -> None:
    normalization = RunningNormalization(SIZE)
    normalization.measure(torch.full((100, SIZE), 7.0))
    assert normalization(torch.full((2, SIZE), 7.0)).tolist() == [[0.0] * SIZE] * 2
    assert float(normalization(torch.full((2, SIZE), 8.0)).max()) == CLIP


def test_the_worker_that_seeds_measures_random_play() -> None:
    """Observations are (row, game, step), 0 to 3 steps: the deviation of the row is ½."""
    network = torch.nn.Sequential(RunningNormalization(SIZE))
    environments = ScriptedEnvironments(*[[Game((0.0,) * 4, "terminated")]] * 2)
    measure_normalization(network, environments, seed=0)
    normalised = network(torch.tensor([[0.0, 0.0, 1.5], [1.0, 0.0, 1.5]]))
    torch.testing.assert_close(normalised[:, 0], torch.tensor([-1.0, 1.0]))
    assert float(normalised[:, 2].abs().max()) < 0.1


def test_frames_have_no_running_scale() -> None:
    with pytest.raises(SettingsError, match="--normalization running: needs vectors"):
        PolicyValueNetwork(Network(normalization="running"), pixels(4, 42, 42), policy_parameters=2)
