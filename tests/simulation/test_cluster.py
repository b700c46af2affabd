"""The whole cluster in one thread, on good networks and bad ones."""

from typing import Any

import numpy as np
import pytest

from ps_common.errors import RequestRefused, RunEnded
from tests.simulation.cluster import Faults, SimulatedCluster, ones

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
GOOD = Faults()
BAD_NETWORKS = [
    Faults(drop=0.2),
    Faults(duplicate=0.3),
    Faults(longest_delay_seconds=0.4),
    Faults(drop=0.15, duplicate=0.15, longest_delay_seconds=0.3),
]


def applied_exactly_once(cluster: SimulatedCluster) -> bool:
    """With ones, sgd and learning rate 1 the weights count the updates."""
    run = cluster.server.run
    assert run is not None
    updates = run.weights.version - 1
    return bool(np.array_equal(cluster.weights(), np.full(3, -updates, dtype=np.float32)))


def test_four_workers_find_the_minimum() -> None:
    cluster = SimulatedCluster(workers=4, updates=100, seed=0, faults=GOOD)
    cluster.run_to_the_end()
    assert cluster.distance_to_goal() < 1e-3
    assert cluster.server.version == 1 + 4 * 100


@pytest.mark.parametrize("faults", BAD_NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_training_survives_a_bad_network(faults: Faults, seed: int) -> None:
    cluster = SimulatedCluster(workers=4, updates=60, seed=seed, faults=faults)
    cluster.run_to_the_end()
    assert cluster.distance_to_goal() < 0.05
    assert [worker.error for worker in cluster.workers] == [None] * 4


@pytest.mark.parametrize("seed", range(3))
def test_versions_never_go_back_within_an_epoch(seed: int) -> None:
    faults = Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.0)
    cluster = SimulatedCluster(workers=3, updates=40, seed=seed, faults=faults)
    cluster.run_to_the_end()
    for worker in cluster.workers:
        assert worker.seen == sorted(worker.seen)


@pytest.mark.parametrize("faults", [GOOD, *BAD_NETWORKS], ids=str)
def test_a_server_that_is_killed_before_its_first_checkpoint_loses_nothing(faults: Faults) -> None:
    options: dict[str, Any] = {"gradient": ones, "settings": EXACT, "checkpoint_takes_seconds": 30.0}
    cluster = SimulatedCluster(workers=2, updates=100, seed=3, faults=faults, **options)
    cluster.run_until(lambda: cluster.server.version > 50)
    assert cluster.checkpoint is None
    cluster.kill_server()
    cluster.step()
    cluster.restore_server()
    cluster.run_to_the_end()
    assert [worker.error for worker in cluster.workers] == [None] * 2
    cluster.run_until(lambda: cluster.server.version == 1 + 200)
    np.testing.assert_array_equal(cluster.weights(), -200)


def test_a_restarted_worker_starts_a_new_account_and_the_old_process_is_turned_away() -> None:
    cluster = SimulatedCluster(workers=2, updates=50, seed=4, faults=GOOD, gradient=ones, settings=EXACT)
    cluster.run_until(lambda: cluster.workers[0].acknowledged > 20)
    zombie = cluster.workers[0]
    cluster.restart_worker(0)
    cluster.run_until(lambda: cluster.workers[0].acknowledged > 0)
    zombie.alive = True
    cluster.workers.append(zombie)
    cluster.run_until(lambda: zombie.error is not None)
    assert isinstance(zombie.error, RequestRefused)
    assert zombie.error.code == "superseded"
    cluster.run_to_the_end()
    assert applied_exactly_once(cluster)


def test_a_silent_worker_loses_its_lease_and_gets_it_back_with_its_next_message() -> None:
    cluster = SimulatedCluster(workers=2, updates=10_000, seed=5, faults=GOOD)
    cluster.run_until(lambda: len(cluster.server.membership.alive()) == 2)
    paused = cluster.workers.pop()
    cluster.run_until(lambda: len(cluster.server.membership.alive()) == 1, within_seconds=4)
    cluster.workers.append(paused)
    cluster.run_until(lambda: len(cluster.server.membership.alive()) == 2, within_seconds=10)
    pushed = paused.acknowledged
    cluster.run_until(lambda: paused.acknowledged > pushed + 5, within_seconds=10)


def test_the_budget_ends_the_run_for_everyone() -> None:
    settings = EXACT | {"budget": {"max_steps": 200}}
    cluster = SimulatedCluster(workers=3, updates=10_000, seed=6, faults=Faults(drop=0.05), settings=settings)
    cluster.run_until(lambda: all(worker.error is not None for worker in cluster.workers))
    assert all(isinstance(worker.error, RunEnded) for worker in cluster.workers)
    cluster.run_until(lambda: cluster.exited, within_seconds=10)
    assert cluster.server.run is not None
    assert cluster.server.run.progress.global_steps == 200
    assert cluster.checkpoint is not None
