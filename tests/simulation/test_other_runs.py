"""Servers of other runs, and processes of one name, over networks that lose, double and reorder."""

from typing import Any

import numpy as np
import pytest

from ps_common.errors import ServerUnreachable
from tests.simulation.cluster import Faults, SimulatedCluster, integers

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
NETWORKS = [Faults(), Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)]
EACH_NETWORK = pytest.mark.parametrize("faults", NETWORKS, ids=str)


def a_cluster(faults: Faults, seed: int = 1, **options: Any) -> SimulatedCluster:
    known: dict[str, Any] = {"workers": 2, "updates": 10**6, "gradient": integers(seed), "settings": EXACT}
    return SimulatedCluster(seed=seed, faults=faults, **known | options)


def let_pass(cluster: SimulatedCluster, seconds: float) -> None:
    until = cluster.now + seconds
    cluster.run_until(lambda: cluster.now >= until)


@EACH_NETWORK
def test_a_new_run_on_an_old_port_gets_neither_weights_nor_pushes_of_the_old_ones_workers(faults: Faults) -> None:
    cluster = a_cluster(faults)
    cluster.run_until(lambda: cluster.server.version > 100)
    cluster.kill_server()
    old = list(cluster.workers)
    cluster.begin_another_run()
    let_pass(cluster, 30.0)
    assert cluster.server.run is None, "nobody has joined"
    assert cluster.server.refusals.counts["other_run"] > 1
    cluster.workers.append(fresh := cluster.add_worker("fresh"))
    cluster.run_until(lambda: fresh.acknowledged > 20)
    for worker in cluster.workers:
        worker.updates = worker.made
    cluster.run_until(lambda: fresh.finished)
    np.testing.assert_array_equal(cluster.weights(), -fresh.total)
    assert [worker.error for worker in old] == [None, None], "they wait for their run"


@EACH_NETWORK
def test_workers_that_wait_for_their_run_go_on_with_it_when_it_is_there_again(faults: Faults) -> None:
    """A server was started in a wrong folder, and then in the right one: nothing is lost."""
    cluster = a_cluster(faults)
    cluster.run_until(lambda: cluster.checkpoint is not None and cluster.server.version > 100)
    checkpoint, lineage = cluster.checkpoint, cluster.lineage
    cluster.kill_server()
    cluster.begin_another_run()
    let_pass(cluster, 20.0)
    cluster.kill_server()
    cluster.checkpoint, cluster.lineage = checkpoint, lineage
    cluster.restore_server()
    cluster.run_until(lambda: all(worker.acknowledged > 100 for worker in cluster.workers))
    for worker in cluster.workers:
        worker.updates = worker.made
    cluster.run_to_the_end()
    cluster.run_until(lambda: not cluster.lost().any(), within_seconds=30)


@EACH_NETWORK
@pytest.mark.parametrize("seed", range(3))
def test_of_two_processes_of_one_name_the_first_goes_on_and_the_second_ends(seed: int, faults: Faults) -> None:
    cluster = a_cluster(faults, seed)
    first = cluster.workers[0]
    cluster.run_until(lambda: first.acknowledged > 10)
    second = cluster.add_worker("w0", process=2)
    cluster.workers.append(second)
    cluster.run_until(lambda: second.error is not None, within_seconds=200)
    assert isinstance(second.error, ServerUnreachable)
    assert "a process named w0 has joined" in str(second.error)
    assert second.acknowledged == 0
    seen = first.acknowledged
    cluster.run_until(lambda: first.acknowledged > seen + 20)
    assert first.error is None
