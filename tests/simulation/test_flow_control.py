"""The bytes of pushes in flight stay within the server's budget, whatever is lost, retried or killed."""

from typing import Any

import numpy as np
import pytest

from ps_client.machine.effects import Transmit
from ps_common.protocol.messages import Push
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import read_to_server
from tests.simulation.cluster import SCHEMA, Faults, SimulatedCluster, SimulatedWorker, integers

VECTOR_BYTES = 4 * SCHEMA.size
INTEGER_SGD = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}


class CountedCluster(SimulatedCluster):
    """Knows the bytes of vectors of pushes that the network carries, and the most that they were."""

    def __init__(self, **settings: Any) -> None:
        self.under_way = self.most = 0
        super().__init__(gradient=integers(5), settings=INTEGER_SGD, **settings)

    def joined(self) -> None:
        """Until all have joined and know their credits."""
        self.run_until(lambda: all(worker.acknowledged for worker in self.workers))
        self.most = self.under_way

    def _frames_to_server(self, worker: SimulatedWorker, transmit: Transmit) -> Any:
        if isinstance(transmit.message, Push):
            self.under_way += vector_bytes(transmit.vector)
            self.most = max(self.most, self.under_way)
        return super()._frames_to_server(worker, transmit)

    def _to_server(self, peer: bytes, frames: list[bytes]) -> None:
        message, vector = read_to_server(frames)
        if isinstance(message, Push):
            self.under_way -= vector_bytes(vector)
        super()._to_server(peer, frames)


STEADY = Faults()  # nothing is lost or overtaken, and so nothing sent again: messages under way can be counted


@pytest.mark.parametrize("vectors", [1, 3, 8, 20])
def test_pushes_in_flight_stay_within_the_budget(vectors: int) -> None:
    cluster = CountedCluster(
        workers=8, updates=60, seed=1, faults=STEADY, in_flight=4, pulls=False, receive_bytes=vectors * VECTOR_BYTES
    )
    cluster.joined()
    cluster.run_to_the_end()
    assert cluster.most == (vectors if vectors < 8 else 8 * (vectors // 8)) * VECTOR_BYTES
    assert not np.any(cluster.lost())


def test_pushes_resent_to_a_restarted_server_keep_to_the_budget_too() -> None:
    cluster = CountedCluster(
        workers=6,
        updates=80,
        seed=2,
        faults=STEADY,
        in_flight=2,
        checkpoint_seconds=1e9,
        receive_bytes=12 * VECTOR_BYTES,
    )
    cluster.run_until(lambda: all(worker.acknowledged > 40 for worker in cluster.workers))
    cluster.kill_server()
    for _ in range(20):
        cluster.step()
    cluster.restore_server()
    cluster.most = cluster.under_way
    cluster.run_to_the_end()
    assert cluster.most <= 12 * VECTOR_BYTES
    assert not np.any(cluster.lost())


@pytest.mark.parametrize("seed", range(4))
def test_everybody_has_a_turn_on_a_bad_network(seed: int) -> None:
    cluster = CountedCluster(
        workers=5,
        updates=40,
        seed=seed,
        faults=Faults(drop=0.1, duplicate=0.1, longest_delay_seconds=0.2),
        in_flight=2,
        receive_bytes=2 * VECTOR_BYTES,
    )
    cluster.run_until(lambda: all(worker.acknowledged > 10 for worker in cluster.workers))
    cluster.restart_worker(0)
    cluster.workers[1].alive = False
    before = cluster.workers[1].total  # of which what it had under way may be lost with it
    cluster.run_until(lambda: all(worker.finished for worker in cluster.workers))
    assert [worker.acknowledged for worker in cluster.workers[2:]] == [40, 40, 40]
    assert before is cluster.workers[1].total
