"""Workers that take deltas, on bad networks, behind servers that die: they have the weights of the server's version."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from ps_client.machine.effects import Effect
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.wire import Buffer
from ps_server.state.effects import Send
from tests.simulation.cluster import Faults, SimulatedCluster, SimulatedWorker, ones

UPDATES = 60
# With ones, sgd and learning rate 1 each version has known weights; all are exact in bfloat16.
SETTINGS = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}


@dataclass
class DeltaWorker(SimulatedWorker):
    """It has the newest version as a base, and checks each against what it must be."""

    base: Base | None = None

    def next_call(self, reply: ToWorker | None, vector: Any, *, now: float) -> list[Effect]:
        if isinstance(reply, messages.Weights):
            if reply.codec == "bfloat16":
                self.base = Base(b"".join(vector), 3)
            weights = CODECS[reply.codec].decode(vector, 3).tolist()
            assert weights == [1.0 - reply.version] * 3
        return super().next_call(reply, vector, now=now)

    def weight_codec(self) -> str | Base:
        return self.base or "bfloat16"


class DeltaCluster(SimulatedCluster):
    """It lists the codecs of replies, and the weights that runs began with."""

    def __init__(self, **how: Any) -> None:
        self.codecs: list[str] = []
        self.seeds: list[tuple[str, list[float]]] = []  # codec and weights
        super().__init__(worker=DeltaWorker, updates=UPDATES, gradient=ones, settings=SETTINGS, **how)

    def _send(self, send: Send) -> None:
        if isinstance(send.message, messages.Weights):
            self.codecs.append(send.message.codec)
        super()._send(send)

    def _receive(self, peer: bytes, message: ToServer, vector: Sequence[Buffer]) -> None:
        if isinstance(message, messages.Seed):
            self.seeds.append((message.codec, CODECS[message.codec].decode(vector, 3).tolist()))
        super()._receive(peer, message, vector)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("in_flight", [1, 3])
def test_weights_are_exact_on_a_bad_network(seed: int, in_flight: int) -> None:
    faults = Faults(drop=0.15, duplicate=0.15, longest_delay_seconds=0.3)
    cluster = DeltaCluster(workers=3, seed=seed, faults=faults, in_flight=in_flight)
    cluster.run_to_the_end()
    assert [worker.error for worker in cluster.workers] == [None] * 3
    assert cluster.server.version == 1 + 3 * UPDATES
    assert cluster.codecs.count("delta") > len(cluster.codecs) / 2


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_server_sends_whole_weights_first_and_they_are_exact(seed: int) -> None:
    cluster = DeltaCluster(workers=3, seed=seed, faults=Faults(longest_delay_seconds=0.1))
    for version in (40, 90):
        cluster.run_until(lambda version=version: cluster.server.version > version)
        cluster.kill_server()
        cluster.codecs.clear()
        cluster.restore_server()
        cluster.run_until(lambda: len(cluster.codecs) > 30)
        assert cluster.codecs[0] == "bfloat16"
        assert "delta" in cluster.codecs
    cluster.run_to_the_end()
    assert cluster.server.version == 1 + 3 * UPDATES
    assert [worker.error for worker in cluster.workers] == [None] * 3
