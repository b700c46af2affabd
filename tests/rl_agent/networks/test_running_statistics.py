"""Running statistics of observations, which all workers share, and of discounted returns."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import SgdSettings
from ps_server.state.optimizers import Optimizer
from ps_server.state.weight_store import MOST_ROWS, WeightStore
from rl_agent.agent import build_agent, collector_for
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.networks.running_statistics import (
    CLIP,
    REWARD_CLIP,
    RunningNormalization,
    observe,
)
from rl_agent.rollouts import Trajectory
from tests.rl_agent.scripted_environments import Game, ScriptedEnvironments

SIZE = 3


def saw(network: torch.nn.Module, seen: Tensor) -> None:
    """Observations [N, D] without rewards."""
    observe(network, seen.unsqueeze(1), torch.zeros(len(seen), 1), torch.ones(len(seen), 1))


class Worker:
    """A network with a running normalisation in front, as one worker has it."""

    def __init__(self) -> None:
        self.normalization = RunningNormalization((SIZE,))
        self.network = torch.nn.Sequential(self.normalization, torch.nn.Linear(SIZE, 1))
        self.flat = FlatNetwork(self.network)

    def push_to(self, store: WeightStore, seen: Tensor) -> None:
        """Pull, observe, learn, push."""
        self.flat.load(store.flat)
        saw(self.network, seen)
        gradient, _ = self.flat.gradient_of(self.network(seen).square().sum(), clip=1.0)
        store.apply(gradient, 0.01)


def seen_by(seed: int, *, mean: float = 0.0, deviation: float = 1.0, count: int = 50) -> Tensor:
    return mean + deviation * torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed))


def started(first: Tensor) -> tuple[WeightStore, list[Worker]]:
    """Two workers, of which the first has seeded the run with what it saw in random play."""
    workers = [Worker(), Worker()]
    workers[0].normalization.measure(first)
    workers[0].normalization.begin()
    schema = workers[0].flat.schema
    return WeightStore(schema, workers[0].flat.weights, Optimizer(SgdSettings(), schema)), workers


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
    saw(worker.network, seen_by(1))
    saw(worker.network, seen_by(2))
    loss = worker.network[1].weight.sum()  # type: ignore[union-attr, operator]
    first, norm = worker.flat.gradient_of(loss, clip=0.5)
    added = worker.flat.schema.views(first.clone())
    seen = torch.cat([seen_by(1), seen_by(2)]) - worker.normalization.center
    assert float(added["0.count"]) == 100
    torch.testing.assert_close(added["0.total"], seen.sum(0))
    torch.testing.assert_close(added["0.squares"], seen.square().sum(0))
    assert not added["0.center"].any()
    assert norm == pytest.approx(3**0.5), "sums for the statistics are not part of the norm, and are never clipped"
    second, _ = worker.flat.gradient_of(worker.network[1].weight.sum(), clip=0)  # type: ignore[union-attr, operator]
    assert not second[worker.flat.schema.weights :].any()


def test_the_scale_follows_however_much_was_seen() -> None:
    """Five times as many rows as float32 can count are seen elsewhere, from one worker after the other."""
    store, workers = started(seen_by(0))
    counts = []
    for number in range(20):
        seen = seen_by(number, mean=7.0, deviation=2.0)
        for turn in range(20):
            worker = workers[turn % 2]
            worker.flat.load(store.flat)
            saw(worker.network, seen)
            gradient, _ = worker.flat.gradient_of(worker.network(seen).square().sum(), clip=1.0)
            gradient[store.schema.weights :] *= MOST_ROWS / 4000
            store.apply(gradient, 0.01)
        counts.append(float(worker.flat.schema.views(store.flat)["0.count"]))
    assert max(counts) < MOST_ROWS
    assert min(counts[5:]) >= MOST_ROWS / 4
    worker.flat.load(store.flat)
    everything = torch.cat([seen_by(number, mean=7.0, deviation=2.0) for number in range(20)])
    mean, deviation = worker.normalization.mean_and_deviation()
    torch.testing.assert_close(mean + worker.normalization.center, everything.mean(0), atol=0.3, rtol=0)
    torch.testing.assert_close(deviation, everything.std(0), atol=0.2, rtol=0)


def test_the_worker_that_seeds_measures_random_play() -> None:
    """Observations are (row, game, step), 0 to 3 steps: the deviation of the row is ½."""
    network = torch.nn.Sequential(RunningNormalization((SIZE,)))
    environments = ScriptedEnvironments(*[[Game((0.0,) * 4, "terminated")]] * 2)
    measure_normalization(network, environments, seed=0)
    normalised = network(torch.tensor([[0.0, 0.0, 1.5], [1.0, 0.0, 1.5]]))
    torch.testing.assert_close(normalised[:, 0], torch.tensor([-1.0, 1.0]))
    assert float(normalised[:, 2].abs().max()) < 0.1


@pytest.mark.parametrize("side", [8, 64, 128])
def test_images_of_numbers_have_one_scale_for_each_channel(side: int) -> None:
    """Against numpy in float64 over the whole stream, from two workers in turn; means and scales differ by channel."""
    torch.manual_seed(side)
    scales = torch.tensor([1.0, 50.0, 0.01]).view(3, 1, 1)
    batches = [3.0 * scales + (1 + number / 5) * scales * torch.randn(10, 3, side, side) for number in range(8)]
    workers = [RunningNormalization((3, side, side)) for _ in range(2)]
    workers[0].measure(batches[0])
    workers[0].begin()
    workers[1].load_state_dict(workers[0].state_dict())
    for turn, seen in enumerate(batches[1:]):
        workers[turn % 2].observe(seen)
    for worker in workers:
        for name, added in worker.take_added().items():
            getattr(workers[0], name).add_(added)
    everything = torch.cat(batches).double().numpy()
    assert float(workers[0].count) == len(everything), "rows are steps, and not pixels"
    mean, deviation = everything.mean((0, 2, 3)), everything.std((0, 2, 3))
    expected = (everything - mean.reshape(3, 1, 1)) / deviation.reshape(3, 1, 1)
    found = workers[0](torch.cat(batches)).double().numpy()
    np.testing.assert_allclose(found, expected.clip(-CLIP, CLIP), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_a_scale_that_float32_cannot_tell_blows_nothing_up(far: float) -> None:
    """All that is seen after random play is far from it, and hardly differs."""
    normalization = RunningNormalization((1,))
    normalization.measure(torch.randn(50, 1, generator=torch.Generator().manual_seed(1)))
    normalization.begin()
    for name in ("count", "total", "squares"):
        getattr(normalization, name).zero_()
    normalization.add(far + torch.randn(1000, 1, generator=torch.Generator().manual_seed(0)))
    for name, added in normalization.take_added().items():
        getattr(normalization, name).add_(added)
    assert float(normalization(torch.tensor([[far]])).abs()) < 1
    assert float(normalization(torch.tensor([[far * 1.002]])).abs()) < CLIP


# -- returns ----------------------------------------------------------------------------------------------------------

DISCOUNT = 0.9
PLAYED = (
    ScriptedEnvironments([Game((1.0, -2.0, 30.0), "terminated"), Game((5.0, 0.0), "truncated")]),
    ScriptedEnvironments([Game((-4.0,) * 7, "truncated")], [Game((0.0, 0.0, 0.5), "terminated", lives_lost=(1,))]),
)


def returns_as_written(rewards: Tensor, continues: Tensor, before: list[float]) -> list[float]:
    """The discounted return of every step of every stream, in float64, slowly; `before` is carried on."""
    found = []
    for t in range(len(rewards)):
        for row in range(rewards.shape[1]):
            now = before[row] + float(rewards[t, row])
            found.append(now)
            before[row] = DISCOUNT * now if continues[t, row] else 0.0
    return found


def learner(method: str, **settings: Any) -> Any:
    sections = {
        "name": method,
        "discount": DISCOUNT,
        "reward_clip": 0.0,
        "reward_normalization": "returns",
        "unroll_length": 5,
    }
    run = run_from_dict({"seed": 0, "algorithm": sections | settings, "network": {"hidden": [4]}}, source="test")
    return build_agent(run, PLAYED[0], device=torch.device("cpu"), seed=0)


@pytest.mark.parametrize("clip", [0.0, 3.0])
def test_rewards_are_divided_by_the_deviation_of_the_returns_of_all_workers(clip: float) -> None:
    """Against a written-out float64 version, over unrolls that cut episodes, and two workers who push in turn."""
    agents = [learner("a3c", reward_clip=clip) for _ in PLAYED]
    networks = [FlatNetwork(agent.network) for agent in agents]
    schema = networks[0].schema
    measure_normalization(agents[0].network, PLAYED[0], seed=0)
    store = WeightStore(schema, networks[0].weights, Optimizer(SgdSettings(), schema))
    begun = schema.views(store.flat.double())
    count, center = float(begun["returns.count"]), float(begun["returns.center"])
    total = count * center + float(begun["returns.total"])
    squares = float(begun["returns.squares"]) + 2 * center * total - count * center**2
    collectors = [collector_for(agent, played, seed=0) for agent, played in zip(agents, PLAYED, strict=True)]
    carried = [[0.0] * played.count for played in PLAYED]
    for turn in range(12):
        worker = turn % 2
        network, agent = networks[worker], agents[worker]
        network.load(store.flat)
        seen: Trajectory = collectors[worker].collect()
        rewards = seen.rewards.clamp(-clip, clip) if clip else seen.rewards
        returns = returns_as_written(rewards, seen.continues, carried[worker])
        observe(agent.network, seen.observations[:-1], seen.rewards, seen.continues)
        (batch,) = agent.batches(seen)
        store.apply(network.gradient_of(agent.loss(batch).total, clip=0.0)[0], 0.0)
        count, total = count + len(returns), total + sum(returns)
        squares += sum(value**2 for value in returns)
    networks[0].load(store.flat)
    expected = (squares / count - (total / count) ** 2) ** 0.5
    given = torch.tensor([[0.25, -1.0]])
    torch.testing.assert_close(agents[0].network.returns(given), given / expected, rtol=1e-4, atol=0)
    assert float(agents[0].network.returns(torch.tensor(1e9))) == REWARD_CLIP


@pytest.mark.parametrize("method", ["a3c", "n_step_q", "one_step_q", "one_step_sarsa"])
def test_every_method_learns_from_normalised_rewards_and_reports_true_ones(method: str) -> None:
    """Twice the deviation of the returns, half the rewards."""
    played = ScriptedEnvironments([Game((6.0,) * 5, "terminated")])
    agent = learner(method)
    returns = agent.network.returns
    returns.count.fill_(100.0)
    targets = []
    for deviation in (2.0, 4.0):
        returns.total.zero_()
        returns.squares.fill_(100.0 * deviation**2)
        collector = collector_for(agent, played, seed=0)
        (batch,) = agent.batches(collector.collect())
        last = batch.value_targets[0, -1] if method == "a3c" else batch.targets[-1]
        targets.append(float(last))  # a terminal step's target is its reward
        assert [episode.episode_return for episode in collector.take_episodes()] == [30.0]
    assert targets == [3.0, 1.5]
