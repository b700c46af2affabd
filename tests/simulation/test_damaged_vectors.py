"""
Bits flip inside of vectors on their way. With checksums none of these vectors is applied or played with, and each is
sent again. Without checksums the same flips change weights.
"""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from ps_client.machine.effects import Effect, Transmit
from ps_client.shell import segment_slots
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.protocol.wire import Buffer, read_to_server, take_places
from ps_server.state.effects import Send
from tests.simulation.cluster import Faults, SimulatedCluster, SimulatedWorker, ones
from tests.simulation.test_shared_memory import SETTINGS, MemoryCluster

UPDATES, WORKERS = 40, 2
EVERY = 5  # of so many vectors of a kind one is damaged, the first among them


@dataclass
class PreciseWorker(SimulatedWorker):
    """It compares the weights of each version with what they must be: each push takes 1 from each."""

    checksums: bool = True
    takes_deltas: bool = False
    base: Base | None = None

    def next_call(self, reply: ToWorker | None, vector: Any, *, now: float) -> list[Effect]:
        if isinstance(reply, messages.Weights):
            self.base = Base(b"".join(vector), 3) if self.takes_deltas and reply.codec == "bfloat16" else None
            weights = CODECS[reply.codec].decode(vector, 3).tolist()
            assert weights == [1.0 - reply.version] * 3, f"{weights} of version {reply.version}"
        return super().next_call(reply, vector, now=now)

    def weight_codec(self) -> str | Base:
        return (self.base or "bfloat16") if self.takes_deltas else "float32"


@dataclass
class UncheckedWorker(PreciseWorker):
    checksums: bool = False


@dataclass
class DeltaWorker(PreciseWorker):
    takes_deltas: bool = True


@dataclass
class ForgetfulWorker(DeltaWorker):
    """Now and then a bit of its base changes in its memory."""

    def weight_codec(self) -> str | Base:
        if self.base is not None and self.made % EVERY == 0:
            self.base = Base(bytes([self.base.encoded[0] ^ 1, *self.base.encoded[1:]]), 3)
        return super().weight_codec()


class Flips:
    """Which vectors are damaged: those of one kind, now and then."""

    def __init__(self, kind: str) -> None:
        self.made = 0
        self._kind, self._seen, self._chance = kind, 0, random.Random(7)

    def hits(self, message: Any) -> bool:
        codec = getattr(message, "codec", "")
        if self._kind not in (type(message).__name__, codec):
            return False
        self._seen += 1
        hit = self._seen % EVERY == 1
        self.made += hit
        return hit

    def flip(self, part: Any) -> None:
        """Change a bit of the last element, which is no sign: the vector remains one that a server would apply."""
        part[len(part) - ELEMENT_BYTES + 2 if self._kind != "delta" else self._chance.randrange(len(part))] ^= 1 << 4


class FlippingCluster(SimulatedCluster):
    """Vectors go over the wire."""

    def __init__(self, flips: Flips, **how: Any) -> None:
        self.flips = flips
        super().__init__(updates=UPDATES, workers=WORKERS, seed=3, gradient=ones, settings=SETTINGS, **how)

    def close(self) -> None:
        """It has nothing to close; the one with segments has."""

    def _frames_to_worker(self, send: Send) -> Sequence[Buffer]:
        return self._flipped(send.message, super()._frames_to_worker(send))

    def _frames_to_server(self, worker: SimulatedWorker, transmit: Transmit) -> Sequence[Buffer]:
        return self._flipped(transmit.message, super()._frames_to_server(worker, transmit))

    def _flipped(self, message: Any, frames: Sequence[Buffer]) -> Sequence[Buffer]:
        if len(frames) < 3 or not self.flips.hits(message):
            return frames
        damaged = bytearray(b"".join(frames[2:]))
        self.flips.flip(damaged)
        return [*frames[:2], damaged]


class FlippingMemory(MemoryCluster):
    """Vectors lie in mapped segments, and change there after they were written."""

    def __init__(self, flips: Flips, **how: Any) -> None:
        self.flips = flips
        super().__init__(updates=UPDATES, workers=WORKERS, seed=3, **how)

    def _frames_to_worker(self, send: Send) -> Sequence[Buffer]:
        frames = super()._frames_to_worker(send)
        _, places = take_places(frames)
        if places is not None and places.vector is not None and self.flips.hits(send.message):
            self.flips.flip(self.segments._mapped[send.to].segment.part(*places.vector))
        return frames

    def _to_server(self, peer: bytes, frames: list[bytes]) -> None:
        header, places = take_places(frames)
        part: Any = None
        if peer in self.segments._mapped and places is not None and places.vector is not None:
            part = self.segments._mapped[peer].segment.part(*places.vector)
        is_hit = part is not None and self.flips.hits(read_to_server(header)[0])
        if is_hit:
            self.flips.flip(part)
        super()._to_server(peer, frames)
        if is_hit:
            self.flips.flip(part)  # back: the worker has its gradient in this place alone

    def _hear(self, worker: SimulatedWorker, frames: list[bytes]) -> None:
        if (read := self.memory_of(worker).slots.read(frames)) is not None:
            self._do_worker(worker, worker.machine.receive(*read, now=self.now))


def counted(cluster: SimulatedCluster) -> int:
    """The damaged vectors that the server and the workers have counted."""
    found = sum(worker.machine._requests.damaged for worker in cluster.workers)
    return found + cluster.server.refusals.counts["damaged"]


@pytest.mark.parametrize("memory", [False, True], ids=["wire", "memory"])
@pytest.mark.parametrize("kind", ["Seed", "Push", "Weights", "delta"])
def test_what_is_damaged_on_its_way_is_sent_again(kind: str, memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_slots, "LEAST_BYTES", 1)
    flips = Flips(kind)
    worker = DeltaWorker if kind == "delta" else PreciseWorker
    with closing((FlippingMemory if memory else FlippingCluster)(flips, worker=worker, faults=Faults())) as cluster:
        cluster.run_to_the_end()
        assert [one.error for one in cluster.workers] == [None] * WORKERS
        assert cluster.server.version == 1 + WORKERS * UPDATES
        assert cluster.weights().tolist() == [1.0 - cluster.server.version] * 3
        assert counted(cluster) == flips.made or kind == "delta", "zlib has bits without a meaning"
        assert counted(cluster) > (0 if kind == "Seed" else 10)


@pytest.mark.parametrize("memory", [False, True], ids=["wire", "memory"])
@pytest.mark.parametrize("kind", ["Push", "Weights"])
def test_without_checksums_the_same_flips_change_weights(
    kind: str, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_slots, "LEAST_BYTES", 1)
    how: dict[str, Any] = {"worker": UncheckedWorker, "faults": Faults()}
    cluster: Any = (FlippingMemory if memory else FlippingCluster)(Flips(kind), **how)
    with closing(cluster), pytest.raises(AssertionError, match="of version"):
        cluster.run_to_the_end()


def test_a_base_that_is_wrong_at_the_worker_is_found_when_a_delta_leads_away_from_it() -> None:
    with closing(FlippingCluster(Flips("none"), worker=ForgetfulWorker, faults=Faults())) as cluster:
        cluster.run_to_the_end()
        assert cluster.weights().tolist() == [1.0 - cluster.server.version] * 3
        assert counted(cluster) == WORKERS * UPDATES // EVERY


def test_a_damaged_push_is_settled_once_also_on_a_bad_network() -> None:
    """The refusal, the push and its repetition may all be lost, doubled or late."""
    faults = Faults(drop=0.1, duplicate=0.1, longest_delay_seconds=0.3)
    with closing(FlippingCluster(Flips("Push"), worker=PreciseWorker, faults=faults)) as cluster:
        cluster.run_to_the_end()
        assert cluster.lost().tolist() == [0, 0, 0]
        assert counted(cluster) > 0
