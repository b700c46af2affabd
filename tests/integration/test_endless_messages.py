"""A message without an end is cut off with its connection: memory keeps to its budget, honest workers train on."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import zmq

from ps_common.protocol import messages
from ps_common.protocol.wire import to_frames
from tests.integration.independent_client import Client
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
from tests.rows import nightly
from tests.zmtp import OLD_GREETING, connected, frame, message

SIZE = 2**18  # elements: a vector is 1 MiB
BUDGET_MIB = 16
ATTACKERS = 8
BLOB_BYTES = 2**18
MOST_GROWTH_MIB = 400
CUTS = 16  # connections that are cut off before an attack counts as withstood


class Attack:
    """Connections that send frames, never the last one of a message; a connection that is cut off comes back."""

    def __init__(self, endpoint: str, server: Program, *, frame_bytes: int, first: bytes, most_bytes: int) -> None:
        """`most_bytes` of one connection, which then stays; `first` is said before."""
        self._endpoint, self._first = endpoint, first
        one = frame(bytes(frame_bytes), more=True)
        self._blob = one * max(1, BLOB_BYTES // len(one))
        self._blobs = most_bytes // len(self._blob)
        self._process = psutil.Process(server.process.pid)
        self._over = threading.Event()
        self._cuts = itertools.count(1)
        self.cut = 0
        self.before_mib = self.peak_mib = self._resident_mib()

    def _resident_mib(self) -> float:
        return float(self._process.memory_info().rss / 2**20)

    def send(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError), connected(self._endpoint) as plain:  # cut off
                plain.sendall(self._first)
                for _ in range(self._blobs):
                    plain.sendall(self._blob)
                    if self._over.is_set():
                        return
                plain.settimeout(0.1)
                while not self._over.is_set():
                    with contextlib.suppress(TimeoutError):
                        if not plain.recv(2**16):
                            break
            self.cut = next(self._cuts)

    def watch(self) -> None:
        while not self._over.wait(0.005):
            self.peak_mib = max(self.peak_mib, self._resident_mib())

    @property
    def growth_mib(self) -> float:
        return self.peak_mib - self.before_mib

    @contextmanager
    def under_way(self) -> Iterator[None]:
        threads = [threading.Thread(target=run) for run in [self.watch, *[self.send] * ATTACKERS]]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def hello() -> bytes:
    asked = messages.Hello(request=1, worker_id="a-traitor", secret="0" * 32, protocols=(1, 1))
    return message([bytes(part) for part in to_frames(asked)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("frame_bytes", "first", "most_bytes"),
    [
        pytest.param(2**16, b"", 2**40, id="a stranger's message, as long as can be"),
        pytest.param(2**16, hello(), 2**40, id="a worker's message, as long as can be"),
        nightly(2**16, b"", 9 * 2**19, id="many strangers' messages, each no longer than a push"),
        nightly(1, b"", 2**40, id="frames of a byte"),
        nightly(0, hello(), 2**40, id="a worker's empty frames"),
    ],
)
def test_a_message_without_an_end_costs_no_more_than_the_budget(
    programs: Programs, tmp_path: Path, frame_bytes: int, first: bytes, most_bytes: int
) -> None:
    server, endpoint = programs.start_server("--receive-mib", str(BUDGET_MIB), "--checkpoint-seconds", "3600")
    honest = Client(endpoint, "honest")
    honest.socket.setsockopt(zmq.LINGER, 0)
    honest.join([{"name": "w", "shape": [SIZE], "dtype": "float32"}], np.zeros(SIZE))
    honest.pull()
    ones, pushes = np.ones(SIZE), 0
    for _ in range(20):
        honest.push_pull(ones, steps=1)
        pushes += 1
    attack = Attack(endpoint, server, frame_bytes=frame_bytes, first=first, most_bytes=most_bytes)
    with attack.under_way():
        while attack.cut < CUTS and attack.growth_mib < 4 * MOST_GROWTH_MIB:
            honest.push_pull(ones, steps=1)
            pushes += 1
    assert attack.growth_mib < MOST_GROWTH_MIB
    wait_for(lambda: status_of(endpoint).updates == pushes)
    np.testing.assert_allclose(weights_of(endpoint, SIZE).numpy(), -0.1 * pushes, rtol=1e-4)
    wait_for(lambda: "cut off: a connection of" in server.output)
    honest.leave()


def test_a_peer_of_an_older_zmtp_does_not_end_the_server(programs: Programs) -> None:
    """ZeroMQ does not say on which connection the messages of such a peer came."""
    server, endpoint = programs.start_server()
    host, _, port = endpoint.rpartition(":")
    asked = message([bytes(part) for part in to_frames(messages.StatusRequest(request=1))])
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(OLD_GREETING + asked)
        heard = b""
        while b"STATUS" not in heard:
            heard += (part := plain.recv(4096))
            assert part, server.output
    assert status_of(endpoint).updates == 0
    assert server.process.poll() is None
