"""A server that is killed and comes back from its newest checkpoint: as long as the workers live, no push is lost."""

import random
from typing import Any

import numpy as np
import pytest

from tests.simulation.cluster import Faults, SimulatedCluster, integers

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
NETWORKS = [
    Faults(),
    Faults(drop=0.1),
    Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3),
]
PUSH_BYTES = 12 + 1024  # of one push that is kept


def a_cluster(seed: int, faults: Faults = NETWORKS[2], **options: Any) -> SimulatedCluster:
    known: dict[str, Any] = {"workers": 3, "updates": 150, "in_flight": 4, "checkpoint_takes_seconds": 0.4}
    options = known | options
    return SimulatedCluster(seed=seed, faults=faults, gradient=integers(seed), settings=EXACT, **options)


def kill_and_restore(cluster: SimulatedCluster, chance: random.Random, *, times: int) -> None:
    """At moments of chance, once there is a checkpoint to come back with."""
    for _ in range(times):
        target = cluster.server.version + chance.randrange(5, 80)
        cluster.run_until(
            lambda target=target: cluster.checkpoint is not None and cluster.server.version >= target  # type: ignore[misc]
        )
        for _ in range(chance.randrange(10)):
            cluster.step()
        cluster.kill_server()
        for _ in range(chance.randrange(60)):
            cluster.step()
        cluster.restore_server()


def nothing_is_lost_or_doubled(cluster: SimulatedCluster) -> None:
    made = sum(worker.made for worker in cluster.workers)
    assert [worker.error for worker in cluster.workers] == [None] * len(cluster.workers)
    np.testing.assert_array_equal(cluster.lost(), 0)
    assert cluster.server.version == 1 + made
    assert cluster.server.run is not None
    assert cluster.server.run.progress.global_steps == 2 * made


@pytest.mark.parametrize("pulls", [True, False], ids=["push-pull", "push"])
@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_a_server_killed_three_times_loses_no_push(seed: int, faults: Faults, pulls: bool) -> None:
    cluster = a_cluster(seed, faults, pulls=pulls)
    kill_and_restore(cluster, random.Random(seed), times=3)
    cluster.run_to_the_end()
    cluster.run_until(lambda: cluster.server.version >= 1 + 3 * 150)
    nothing_is_lost_or_doubled(cluster)
    assert cluster.lives == 4
    assert all(sorted(worker.applied) == list(range(1, 151)) for worker in cluster.workers)


@pytest.mark.parametrize("seed", range(2))
def test_a_full_buffer_makes_the_server_save_early_and_the_workers_wait(seed: int) -> None:
    """The next checkpoint is due in an hour; a worker may keep eight pushes."""
    room = 8 * PUSH_BYTES
    cluster = a_cluster(seed, checkpoint_seconds=3600.0, resend_bytes=room, in_flight=1)
    most = 0
    while not all(worker.finished for worker in cluster.workers):
        cluster.step()
        run = cluster.server.run
        if run is not None:
            most = max([most, *(account.through - account.durable for account in run.ledger.accounts.values())])
        assert cluster.now < 700.0
    assert most <= 8
    cluster.kill_server()
    cluster.restore_server()
    cluster.run_until(lambda: cluster.server.version >= 1 + 3 * 150)
    nothing_is_lost_or_doubled(cluster)


def test_a_disk_with_free_space_again_makes_pushes_durable_again() -> None:
    cluster = a_cluster(7, resend_bytes=10 * PUSH_BYTES, updates=600)
    cluster.run_until(lambda: cluster.checkpoint is not None and cluster.server.version > 20)
    cluster.disk_full = True
    cluster.run_until(lambda: cluster.server.version > 400)
    cluster.disk_full = False
    newest = cluster.checkpoint
    cluster.run_until(lambda: cluster.checkpoint is not newest)
    kill_and_restore(cluster, random.Random(7), times=2)
    cluster.run_to_the_end()
    cluster.run_until(lambda: cluster.server.version >= 1 + 3 * 600)
    nothing_is_lost_or_doubled(cluster)


@pytest.mark.parametrize("seed", range(2))
def test_a_server_that_was_killed_before_it_had_saved_gets_each_push_once(seed: int) -> None:
    cluster = a_cluster(seed, NETWORKS[0], workers=2, checkpoint_takes_seconds=1000.0)
    cluster.run_until(lambda: cluster.server.version > 100)
    assert cluster.checkpoint is None
    quiet = [cluster.workers.pop()]  # comes back when the other has seeded the run
    cluster.kill_server()
    cluster.step()
    cluster.restore_server()
    cluster.run_until(lambda: cluster.server.version > 1)
    cluster.workers += quiet
    cluster.run_to_the_end()
    cluster.run_until(lambda: cluster.server.version >= 1 + 2 * 150)
    nothing_is_lost_or_doubled(cluster)


def test_without_a_buffer_what_came_after_the_checkpoint_is_lost_but_nothing_is_doubled() -> None:
    """The test above would find it, were pushes not sent again."""
    cluster = a_cluster(0, NETWORKS[0], resend_bytes=0)
    kill_and_restore(cluster, random.Random(0), times=3)
    cluster.run_to_the_end()
    assert 1 + 150 < cluster.server.version < 1 + 3 * 150
