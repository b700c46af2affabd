"""A server whose weights became NaN or Inf, by any cause, serves and saves sound ones again of its own accord."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zmq

from ps_common.protocol import messages
from ps_common.protocol.messages import Message, ToServer, settlement_of
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import Buffer, Places, read_to_worker, to_frames, with_places
from ps_common.run_folder.places import newest_step
from ps_common.sockets.shared_memory import PAGE_BYTES, Segment
from tests.integration.independent_client import Client
from tests.integration.processes import DEADLINE_SECONDS, Programs, status_of, wait_for, weights_of
from tests.ps_server.transcripts import secret_of
from tests.segments import open_in

SIZE = 1_000_000
SCHEMA = Schema([TensorSpec("all", (SIZE,))])
NAMES, PUSHES = 10, 20  # a connection may bring so many names
FLIPPER = """
import itertools, mmap, sys, numpy as np
descriptor, at, size = map(int, sys.argv[1:])
slot = np.frombuffer(mmap.mmap(descriptor, at + size), dtype=np.float32)[at // 4 :]
print("flipping", flush=True)
element, nan = slot[len(slot) // 2 :][:1], np.float32("nan")
for pause in itertools.cycle(range(0, 2000, 50)):  # about as long as the vector is looked at
    for value in (nan, 0):
        element[0] = value
        for _ in range(pause):
            pass
"""


def test_a_gradient_that_ruins_the_weights_is_undone_and_the_run_goes_on(programs: Programs, tmp_path: Path) -> None:
    """With an epsilon that is 0 in float32, RMSProp divides by 0 where the first gradient is 0."""
    server, endpoint = programs.start_server("--optimizer", "rmsprop", "--epsilon", "1e-300")
    client = Client(endpoint, "careless")
    client.join([{"name": "w", "shape": [3], "dtype": "float32"}], np.array([1.0, 2.0, 3.0]))
    wait_for(lambda: status_of(endpoint).checkpoint_version == 1, program=server)
    client.pull()
    client.push_pull(np.array([0.0, 1.0, 1.0]), steps=1)
    line = wait_for(lambda: re.search(r"the weights hold NaN.*", server.output), program=server)[0]
    assert "pushes of careless (1). Going on from checkpoint-000000000000-000000000001.safetensors" in line
    assert client.pull().tolist() == [1, 2, 3]
    for _ in range(10):
        assert np.isfinite(client.push_pull(np.ones(3), steps=1)).all()
    client.leave()
    server.process.terminate()
    assert server.wait() == 0
    assert newest_step(tmp_path / "run") == 11


class Neighbour:
    """A worker by hand, whose gradients lie in shared memory."""

    def __init__(self, endpoint: str) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://{endpoint}")
        self.segment = Segment.make()
        self.segment.reserve(4 * SIZE)
        self.requests = 0

    def ask(self, message: ToServer, *vector: Buffer, places: Places | None = None) -> Message:
        frames = to_frames(message, vector)
        self.socket.send_multipart(frames if places is None else with_places(frames, places))
        assert self.socket.poll(DEADLINE_SECONDS * 1000)
        return read_to_worker([frame.buffer for frame in self.socket.recv_multipart(copy=False)])[0]

    def next(self) -> int:
        self.requests += 1
        return self.requests

    def join(self, name: str) -> messages.Welcome:
        hello = messages.Hello(
            request=self.next(), worker_id=name, secret=secret_of(name), protocols=(1, 1), memory=self.segment.name,
            proposed_run={"optimizer": {"name": "sgd"}},
        )  # fmt: skip
        welcome = self.ask(hello)
        assert isinstance(welcome, messages.Welcome)
        self.ask(messages.Seed(request=self.next(), schema=SCHEMA.specs), bytes(4 * SIZE))
        return welcome

    def push(self, sequence: int) -> messages.Settlement:
        push = messages.Push(
            request=self.next(), sequence=sequence, computed_on=1, epoch=1, schema_hash=SCHEMA.hash
        )  # fmt: skip
        settled = settlement_of(self.ask(push, places=Places(self.segment.name, (PAGE_BYTES, 4 * SIZE))))
        assert settled is not None
        return settled

    def close(self) -> None:
        self.socket.close()
        self.segment.close()


@pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")
def test_what_is_flipped_in_shared_memory_while_it_is_judged_is_not_applied(programs: Programs) -> None:
    """Another process turns an element of the gradient into NaN and back all the time."""
    server, endpoint = programs.start_server("--preset", "cartpole-a3c")
    neighbour = Neighbour(endpoint)
    try:
        assert neighbour.join("n0").memory == neighbour.segment.proof
        descriptor = neighbour.segment._descriptor
        command = [sys.executable, "-c", FLIPPER, str(descriptor), str(PAGE_BYTES), str(4 * SIZE)]
        with subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE) as flipper:
            assert flipper.stdout is not None
            assert flipper.stdout.readline() == b"flipping\n"
            verdicts = set()
            try:
                for name in range(NAMES):
                    neighbour.join(f"n{name}")
                    verdicts |= {neighbour.push(sequence).verdict for sequence in range(1, PUSHES)}
            finally:
                flipper.kill()
        assert np.isfinite(weights_of(endpoint, SIZE).numpy()).all()
        assert "the weights hold NaN" not in server.output
        assert verdicts == {"applied", "discarded"}
        assert open_in(server.process.pid) > 0
    finally:
        neighbour.close()
