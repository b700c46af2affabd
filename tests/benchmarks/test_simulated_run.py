"""Runs of many workers in one process: their staleness is that of as many parallel ones, and the seed decides them."""

from contextlib import closing

import pytest
import torch
from msgspec import structs

from benchmarks.learning.simulated_run import SimulatedRun
from ps_common.settings import run_spec
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.networks.running_statistics import RunningNormalization


def a_run(**settings: object) -> RunSpec:
    return RunSpec(
        seed=3,
        environment=run_spec.Environment(id="CartPole-v1", envs=2),
        algorithm=run_spec.A3CSettings(unroll_length=5),
        network=run_spec.NetworkSettings(name="mlp", hidden=(4,)),
        budget=run_spec.Budget(max_steps=600),
        **settings,  # type: ignore[arg-type]
    )


def ended(workers: int = 1, delays: tuple[int, ...] = (0,), **settings: object) -> SimulatedRun:
    simulated = SimulatedRun(a_run(**settings), workers=workers, delays=delays)
    simulated.to_the_end()
    return simulated


@pytest.mark.parametrize(("workers", "delays", "staleness"), [(1, (0,), 0), (4, (0,), 3), (1, (7,), 7), (3, (4,), 6)])
def test_a_gradient_is_as_late_as_the_workers_and_delays_make_it(
    workers: int, delays: tuple[int, ...], staleness: int
) -> None:
    progress = ended(workers, delays).run.progress
    assert progress.global_steps >= 600
    late = progress.take_staleness()
    assert set(late[2 * staleness :]) == {staleness}, "after the first pulls, when there are no older weights"


def test_the_seed_decides_a_run_bit_for_bit() -> None:
    first, again = ended(workers=3), ended(workers=3)
    assert torch.equal(first.run.weights.flat, again.run.weights.flat)


def test_the_first_weights_have_the_statistics_of_random_play_as_in_a_real_run() -> None:
    spec = structs.replace(a_run(), network=run_spec.NetworkSettings(name="mlp", hidden=(4,), normalization="running"))
    simulated = SimulatedRun(spec, workers=2)
    simulated.to_the_end()
    with closing(make_environments(spec.environment, count=2)) as environments:
        trained, expected = (
            build_agent(spec, environments, device=torch.device("cpu"), seed=3).network for _ in range(2)
        )
        FlatNetwork(trained).load(simulated.run.weights.flat)
        measure_normalization(expected, environments, seed=3000)
    [found], [played] = (
        [module for module in network.modules() if isinstance(module, RunningNormalization)]
        for network in (trained, expected)
    )
    assert torch.equal(found.center, played.center)
    assert found.count > played.count, "workers add their steps"
