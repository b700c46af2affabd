"""
Workers that are hundreds of pushes old, when the server that comes back knows none of them, or only the first few.

The server takes pushes within a window of 64 sequences; sequences before it must never keep a worker out.
"""

from typing import Any

import numpy as np
import pytest

from ps_server.state.training_run import PUSH_WINDOW
from tests.simulation.cluster import Faults, SimulatedCluster, SimulatedWorker, integers
from tests.simulation.pair import SimulatedPair

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
NETWORKS = [Faults(), Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)]
OLD = 3 * PUSH_WINDOW  # pushes of each worker
UPDATES = OLD + 60
PUSH_BYTES = 12 + 1024
ROOM = [0, 8 * PUSH_BYTES, 10**7]  # for pushes that are kept: none, few, all


def options(seed: int, faults: Faults, **others: Any) -> dict[str, Any]:
    known = {"workers": 2, "updates": UPDATES, "in_flight": 4, "checkpoint_takes_seconds": 0.1}
    return known | {"seed": seed, "faults": faults, "gradient": integers(seed), "settings": EXACT} | others


def are_old(workers: list[SimulatedWorker]) -> bool:
    return all(worker.acknowledged >= OLD for worker in workers)


def all_come_to_the_end(cluster: SimulatedCluster) -> None:
    cluster.run_to_the_end()
    assert [worker.error for worker in cluster.workers] == [None] * len(cluster.workers)
    assert all(sorted(worker.applied) == list(range(1, UPDATES + 1)) for worker in cluster.workers)


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_at_a_server_that_could_never_save_they_go_on(seed: int, faults: Faults, room: int) -> None:
    cluster = SimulatedCluster(**options(seed, faults, resend_bytes=room))
    cluster.disk_full = True
    cluster.run_until(lambda: are_old(cluster.workers))
    cluster.kill_server()
    assert cluster.checkpoint is None
    cluster.disk_full = False
    cluster.restore_server()
    all_come_to_the_end(cluster)
    if room == ROOM[-1]:
        np.testing.assert_array_equal(cluster.lost(), 0)


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_at_a_server_resumed_from_its_first_checkpoint_they_go_on(seed: int, faults: Faults, room: int) -> None:
    cluster = SimulatedCluster(**options(seed, faults, resend_bytes=room))
    cluster.run_until(lambda: cluster.checkpoint is not None)
    first = cluster.checkpoint
    cluster.run_until(lambda: are_old(cluster.workers))
    cluster.kill_server()
    cluster.checkpoint = first
    cluster.restore_server()
    all_come_to_the_end(cluster)


@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_at_a_standby_that_was_cut_off_for_long_they_go_on_with_what_they_keep(seed: int, faults: Faults) -> None:
    pair = SimulatedPair(**options(seed, faults, checkpoint_seconds=3600.0))
    pair.follow()
    pair.save()
    pair.run_until(lambda: not pair.server.checkpoints.is_writing)
    durable = pair.server.checkpoints.saved.version
    pair.run_until(lambda: pair.standby.version > durable)
    pair.link_is_cut = True
    pair.run_until(lambda: are_old(pair.workers))
    pair.kill_server()
    pair.run_until(lambda: any("went on without this standby" in note for note in pair.notes), within_seconds=60)
    assert pair.standby.server is None, "nobody here knows that each worker has kept what it made"
    pair.promote_by_admin("the primary and its disk are lost")
    pair.promote()
    all_come_to_the_end(pair)
    np.testing.assert_array_equal(pair.lost(), 0)
