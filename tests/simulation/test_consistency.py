"""Rounds and bounded lead with whole workers, on networks that lose, double and delay messages."""

import numpy as np
import pytest

from tests.simulation.cluster import Faults, SimulatedCluster, ones

BAD_NETWORKS = [Faults(), Faults(drop=0.2), Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)]
each_network = pytest.mark.parametrize("faults", BAD_NETWORKS, ids=str)


def a_cluster(
    rule: str, faults: Faults, *, seed: int = 0, updates: int = 40, workers: int = 2, **settings: int
) -> SimulatedCluster:
    return SimulatedCluster(
        workers=workers,
        updates=updates,
        seed=seed,
        faults=faults,
        settings={
            "optimizer": {"name": "adam"},
            "schedule": {"learning_rate": 0.05},
            "consistency": {"rule": rule, **settings},
        },
    )


@each_network
def test_rounds_of_the_same_workers_come_to_the_same_bits(faults: Faults) -> None:
    """Gradients are of the weights of the round before, in any order and with any fault of the network."""
    calm = a_cluster("sync", Faults(), quorum=2)
    calm.run_to_the_end()
    for seed in range(3):
        cluster = a_cluster("sync", faults, seed=seed, quorum=2)
        cluster.run_to_the_end()
        assert np.array_equal(cluster.weights(), calm.weights())
        assert cluster.server.version == calm.server.version == 1 + 40


@each_network
@pytest.mark.parametrize("seed", range(3))
def test_rounds_come_to_the_same_bits_when_the_server_is_killed(faults: Faults, seed: int) -> None:
    """Pushes that are sent again go into the rounds that they were in, also when some are lost on the way."""
    calm = a_cluster("sync", Faults(), quorum=2)
    calm.run_to_the_end()
    cluster = a_cluster("sync", faults, seed=seed, quorum=2)
    for acknowledged in (10, 20, 30):
        cluster.run_until(lambda least=acknowledged: cluster.workers[0].acknowledged >= least)  # type: ignore[misc]
        cluster.kill_server()
        for _ in range(20):
            cluster.step()
        cluster.restore_server()
    cluster.run_to_the_end()
    assert np.array_equal(cluster.weights(), calm.weights())
    assert cluster.server.version == calm.server.version


@each_network
@pytest.mark.parametrize("slack", [1, 3])
def test_no_worker_leads_by_more_than_the_slack(faults: Faults, slack: int) -> None:
    cluster = a_cluster("ssp", faults, quorum=2, slack=slack)

    def lead() -> int:
        run = cluster.server.run
        settled = [one.through + len(one.early) for one in run.ledger.accounts.values()] if run else []
        return max(settled) - min(settled) if len(settled) == 2 else 0

    most = 0
    while not all(worker.finished for worker in cluster.workers):
        cluster.step()
        most = max(most, lead())
    assert most <= slack


@pytest.mark.parametrize("rule", ["ssp", "sync"])
def test_a_server_that_is_killed_with_pushes_waiting_loses_none(rule: str) -> None:
    cluster = SimulatedCluster(
        workers=2,
        updates=60,
        seed=3,
        faults=Faults(drop=0.1, duplicate=0.1, longest_delay_seconds=0.2),
        gradient=ones,
        settings={
            "optimizer": {"name": "sgd"},
            "schedule": {"learning_rate": 1.0},
            "consistency": {"rule": rule, "quorum": 2, "slack": 2},
        },
    )
    for acknowledged in (10, 30):
        cluster.run_until(lambda least=acknowledged: cluster.workers[0].acknowledged >= least)  # type: ignore[misc]
        cluster.kill_server()
        for _ in range(20):
            cluster.step()
        cluster.restore_server()
    cluster.run_until(lambda: all(worker.acknowledged >= 50 for worker in cluster.workers))
    assert all(worker.applied == list(range(1, worker.acknowledged + 1)) for worker in cluster.workers)
    if rule == "ssp":
        cluster.run_to_the_end()
        cluster.run_until(lambda: not cluster.lost().any(), within_seconds=60.0)


def test_a_push_that_waits_is_not_sent_again_and_again() -> None:
    """Its worker's heartbeats are answered meanwhile, which elsewhere proves a loss."""
    cluster = a_cluster("sync", Faults(), quorum=2, updates=1)
    cluster.workers[1].alive = False
    sent = 0
    carry = cluster.network.carry

    def counting(*arguments: object, **named: object) -> None:
        nonlocal sent
        sent += 1
        carry(*arguments, **named)  # type: ignore[arg-type]

    for _ in range(40):
        cluster.step()
    cluster.network.carry = counting  # type: ignore[method-assign]
    for _ in range(200):
        cluster.step()
    heartbeats_and_answers = 2 * 200 * 0.05 / 0.4
    assert sent <= heartbeats_and_answers * 1.2
