"""
A cluster whose vectors lie in shared memory, over a network that loses and keeps the order, as a connection does.

Every push takes exactly 1 from each weight, so that the weights of version v are all 1 − v: a vector that is torn, old
or overwritten while somebody reads it shows at once.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from ps_client.machine.effects import Effect, Reconnect, Transmit
from ps_client.shell import segment_slots as slots
from ps_client.shell.segment_slots import SegmentSlots
from ps_common.protocol import messages
from ps_common.protocol.wire import Buffer, read_to_server, take_places, to_frames, with_places
from ps_server.shell.mapped_segments import MappedSegments
from ps_server.state.effects import Send
from tests.segments import open_here
from tests.simulation.cluster import Faults, SimulatedCluster, SimulatedWorker, ones

SETTINGS = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}


@pytest.fixture(autouse=True)
def _nothing_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LEAST_BYTES", 1)


@dataclass
class Memory:
    """
    Of one worker; the newest weights, which it reads for as long as its trainer would; and where its next gradient will
    be, in which there is none until then: a server that still read there would discard it.
    """

    slots: SegmentSlots = field(default_factory=SegmentSlots)
    held: Any = None
    of_version: int = 0
    next: np.ndarray | None = None
    made_here: int = 0  # gradients

    def placed(self, gradient: np.ndarray) -> np.ndarray:
        array, self.next = self.next, None
        if array is not None:
            array[:] = gradient
            self.made_here += 1
        self.next = self.slots.array(len(gradient))
        if self.next is not None:
            self.next.fill(np.nan)
        return gradient if array is None else array

    def check(self) -> None:
        if self.held is not None:
            weights = np.frombuffer(self.held, dtype="<f4")
            assert weights.tolist() == [1 - self.of_version] * 3, f"version {self.of_version}"


class MemoryCluster(SimulatedCluster):
    """As the shells do it."""

    def __init__(self, **settings: Any) -> None:
        self.segments = MappedSegments()
        self.memories: dict[tuple[str, int], Memory] = {}
        self.by_memory = self.by_wire = 0  # answers with weights
        super().__init__(gradient=ones, settings=settings.pop("settings", SETTINGS), **settings)

    def _new_worker(self, worker_id: str, *, process: int) -> SimulatedWorker:
        worker = super()._new_worker(worker_id, process=process)
        worker.placed = self.memory_of(worker).placed
        return worker

    def memory_of(self, worker: SimulatedWorker) -> Memory:
        return self.memories.setdefault((worker.worker_id, worker.process), Memory())

    def step(self) -> None:
        super().step()
        for memory in self.memories.values():
            memory.check()
        self.segments.keep_only({member.peer for member in self.server.membership.alive()})

    def restore_server(self) -> None:
        self.segments.keep_only(())
        self.segments = MappedSegments()
        super().restore_server()

    def close(self) -> None:
        self.segments.keep_only(())
        for memory in self.memories.values():
            memory.slots.release()

    def _frames_to_worker(self, send: Send) -> Sequence[Buffer]:
        message = send.message
        if isinstance(message, messages.Welcome):
            message = msgspec.structs.replace(message, memory=self.segments.proof(send.to, now=self.now))
        places = self.segments.write_reply(send)
        self.by_memory += places is not None
        self.by_wire += places is None and send.snapshot is not None
        if places is not None:
            return with_places(to_frames(message), places)
        return to_frames(message, [send.snapshot.buffer] if send.snapshot else [])

    def _frames_to_server(self, worker: SimulatedWorker, transmit: Transmit) -> Sequence[Buffer]:
        return self.memory_of(worker).slots.to_frames(transmit.message, transmit.vector)

    def _to_server(self, peer: bytes, frames: list[bytes]) -> None:
        if not self.server_up:
            return
        header, places = take_places(frames)
        message, received = read_to_server(header)
        vector = self.segments.take(
            peer, message, received, places, most_bytes=self.server.pushes.most_vector_bytes, now=self.now
        )
        if vector is None:
            gone = messages.Refused(request=message.request, code="unknown_worker", reason="gone")
            self._do_server([Send(peer, gone)])
            return
        if isinstance(message, messages.Hello):
            self.segments.offer(peer, message)
        self._receive(peer, message, vector)

    def _hear(self, worker: SimulatedWorker, frames: list[bytes]) -> None:
        memory = self.memory_of(worker)
        read = memory.slots.read(frames)
        if read is None:
            return
        message, vector = read
        if isinstance(message, messages.Weights):
            memory.check()
            (memory.held,), memory.of_version = vector, message.version
            memory.check()
        self._do_worker(worker, worker.machine.receive(message, vector, now=self.now))

    def _do_worker(self, worker: SimulatedWorker, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reconnect):
                self.memory_of(worker).slots.release()
            super()._do_worker(worker, [effect])


@pytest.fixture
def clusters() -> Iterator[list[MemoryCluster]]:
    made: list[MemoryCluster] = []
    gc.collect()
    before = open_here()  # of other tests in this process
    yield made
    while made:
        made.pop().close()
    gc.collect()
    assert open_here() == before


def test_on_a_good_network_every_vector_goes_by_memory(clusters: list[MemoryCluster]) -> None:
    cluster = MemoryCluster(workers=2, updates=50, seed=0, faults=Faults())
    clusters.append(cluster)
    cluster.run_to_the_end()
    assert cluster.lost().tolist() == [0, 0, 0]
    assert cluster.by_memory >= 100
    assert cluster.by_wire == 0
    assert sum(memory.made_here for memory in cluster.memories.values()) >= 98


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("consistency", ["async", "ssp", "sync"])
def test_a_pull_is_one_version_whole_whatever_is_lost(
    consistency: str, seed: int, clusters: list[MemoryCluster]
) -> None:
    settings = SETTINGS | {"consistency": {"rule": consistency}}
    if consistency == "sync":  # a round is the mean of its gradients: still 1 from each weight
        settings["consistency"] = {"rule": "sync", "quorum": 2}
    cluster = MemoryCluster(workers=2, updates=60, seed=seed, faults=Faults(drop=0.15), settings=settings)
    clusters.append(cluster)
    cluster.run_to_the_end()
    assert cluster.by_memory > 0
    assert cluster.weights().tolist() == [1 - cluster.server.version] * 3


@pytest.mark.parametrize("seed", range(3))
def test_servers_and_workers_that_are_killed_leave_every_pull_whole(seed: int, clusters: list[MemoryCluster]) -> None:
    cluster = MemoryCluster(workers=3, updates=60, seed=seed, faults=Faults(drop=0.1), in_flight=3)
    clusters.append(cluster)
    for kill in range(1, 4):
        cluster.run_until(lambda kill=kill: sum(worker.acknowledged for worker in cluster.workers) > 30 * kill)  # type: ignore[misc]
        cluster.save()
        cluster.kill_server()
        cluster.step()
        cluster.restore_server()
        cluster.restart_worker(kill % 3)
    cluster.run_to_the_end()
    assert cluster.by_memory > 0
    assert cluster.weights().tolist() == [1 - cluster.server.version] * 3


def test_a_worker_that_was_silent_for_a_lease_has_its_segment_mapped_again(clusters: list[MemoryCluster]) -> None:
    cluster = MemoryCluster(workers=1, updates=200, seed=0, faults=Faults())
    clusters.append(cluster)
    worker = cluster.workers[0]
    cluster.run_until(lambda: worker.acknowledged > 5)
    worker.alive = False  # paused
    cluster.run_until(lambda: not cluster.server.membership.alive())
    worker.alive = True
    before = cluster.by_memory
    cluster.run_to_the_end()
    assert cluster.by_memory > before + 100
    assert cluster.lost().tolist() == [0, 0, 0]
