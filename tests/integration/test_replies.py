"""A client that reads, even in bursts, has a reply to every push; one that does not read costs little."""

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from ps_common.buffer_pool import BufferPool
from ps_common.protocol import messages
from ps_common.protocol.messages import Message, ToServer, settlement_of
from ps_common.protocol.tensors import ELEMENT_BYTES, Schema, TensorSpec
from ps_common.protocol.wire import Buffer, read_to_worker, to_frames
from ps_common.settings.run_settings import run_from_dict
from ps_common.sockets.zmq_sockets import COPIED_BYTES
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.shell.send_queue import MOST_WAITING
from ps_server.shell.server_sockets import SEND_HIGH_WATER
from ps_server.shell.zmq_server import ZmqServer
from ps_server.state.training_run import PUSH_WINDOW, TrainingRun
from ps_server.storage.checkpoint_writer import CheckpointWriter
from tests.integration.processes import DEADLINE_SECONDS, wait_for
from tests.ps_server.transcripts import a_lineage, secret_of

SIZE = COPIED_BYTES // ELEMENT_BYTES + 1  # ZeroMQ refers to the weights of such a reply
SCHEMA = Schema([TensorSpec("all", (SIZE,))])
RUN = run_from_dict({"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}, source="test")
ONES = np.ones(SIZE, dtype="<f4").tobytes()


@dataclass
class Client:
    """A DEALER that asks much and reads when it is told to; little fits in between."""

    socket: zmq.Socket[bytes]
    requests: int = 0

    def ask(self, message: ToServer, *vector: Buffer) -> None:
        self.socket.send_multipart(to_frames(message, vector))

    def next(self) -> int:
        self.requests += 1
        return self.requests

    def reply(self) -> tuple[Message, Sequence[Buffer]]:
        assert self.socket.poll(DEADLINE_SECONDS * 1000), f"no answer; {self.requests} requests were made"
        return read_to_worker([frame.buffer for frame in self.socket.recv_multipart(copy=False)])

    def answer(self) -> tuple[Message, np.ndarray]:
        reply, vector = self.reply()
        return reply, np.frombuffer(b"".join(bytes(part) for part in vector), dtype="<f4")

    def join(self, name: str) -> None:
        self.ask(messages.Hello(request=self.next(), worker_id=name, secret=secret_of(name), protocols=(1, 1)))
        assert isinstance(self.answer()[0], messages.Welcome)
        self.ask(messages.Seed(request=self.next(), schema=SCHEMA.specs), np.zeros(SIZE, dtype="<f4").tobytes())
        assert isinstance(self.answer()[0], messages.Seeded)

    def push(self, sequence: int, *, weight_codec: str | None = None) -> None:
        what: dict[str, Any] = {"computed_on": 1, "epoch": 1, "schema_hash": SCHEMA.hash, "weight_codec": weight_codec}
        push = messages.Push(request=self.next(), sequence=sequence, **what)
        self.ask(push, ONES)


@dataclass
class Here:
    machine: ParameterServer
    shell: ZmqServer
    context: zmq.Context[zmq.Socket[bytes]]
    clients: list[Client] = field(default_factory=list)

    def client(self) -> Client:
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.setsockopt(zmq.RCVBUF, 4096)
        socket.connect(f"tcp://127.0.0.1:{self.shell.port}")
        self.clients.append(Client(socket))
        return self.clients[-1]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    machine = ParameterServer(
        TrainingRun(RUN, a_lineage(epoch=1)), lineage=a_lineage(epoch=1), overrides={},
        limits=Limits(lease_seconds=60.0, checkpoint_seconds=1e6), now=time.monotonic(),
    )  # fmt: skip
    shell = ZmqServer(machine, CheckpointWriter(tmp_path), host="127.0.0.1", port=0)
    over = threading.Event()
    ignore = lambda _: None  # noqa: E731
    serve = threading.Thread(
        target=shell.serve, kwargs={"leaving": over.is_set, "on_tick": ignore, "on_record": ignore}
    )
    serve.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    here = Here(machine, shell, context)
    yield here
    context.destroy(linger=0)
    over.set()
    serve.join()
    shell.close()


@pytest.mark.parametrize(("weight_codec", "burst"), [(None, 12), ("float32", PUSH_WINDOW)])
def test_a_client_that_reads_in_bursts_has_a_reply_to_every_push_in_order(
    here: Here, weight_codec: str | None, burst: int
) -> None:
    client = here.client()
    client.join("a")
    version = 1
    for first in range(1, 3 * burst, burst):
        for sequence in range(first, first + burst):
            client.push(sequence, weight_codec=weight_codec)
        wait_for(lambda: here.machine.version == first + burst)  # noqa: B023 (it is called here)
        for sequence in range(first, first + burst):
            reply, weights = client.answer()
            settled = settlement_of(reply)
            assert settled is not None
            assert (settled.sequence, settled.verdict, settled.version) == (sequence, "applied", sequence + 1)
            if isinstance(reply, messages.Weights):
                assert max(version, settled.version) <= reply.version <= first + burst
                version = reply.version
                assert np.unique(weights).tolist() == [1.0 - version], (
                    "they are whole, and of the version that they name"
                )


def test_a_client_that_reads_nothing_costs_the_weights_of_a_few_versions(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: set[int] = set()  # copies of weights that somebody still holds
    take = BufferPool.take

    def counted(pool: BufferPool) -> np.ndarray:
        array = take(pool)
        taken.add(id(array))
        weakref.finalize(array, taken.discard, id(array))
        return array

    monkeypatch.setattr(BufferPool, "take", counted)
    silent, reader = here.client(), here.client()
    silent.join("silent")
    reader.join("reader")
    for sequence in range(1, PUSH_WINDOW + 1):
        silent.push(sequence, weight_codec="float32")
    wait_for(lambda: here.machine.version == 1 + PUSH_WINDOW)
    for sequence in range(1, 200):
        reader.push(sequence, weight_codec="float32")
        assert isinstance(reader.answer()[0], messages.Weights)
        silent.ask(messages.Pull(request=silent.next()))
    assert 1 < len(taken) <= SEND_HIGH_WATER + 6, "what ZeroMQ took, and what is on its way"
    (queue,) = here.shell._replies._queues.values()
    assert PUSH_WINDOW - SEND_HIGH_WATER - 6 < len(queue.waiting) <= MOST_WAITING
    for sequence in range(1, PUSH_WINDOW + 1):  # and when it reads, all is there
        settled = settlement_of(silent.answer()[0])
        assert settled is not None
        assert settled.sequence == sequence
