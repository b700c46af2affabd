"""
Fuzzing of a real server: malformed messages and connections, while two honest workers push integers.

Run it as a module, with sizes in the environment: SEED=, MESSAGES=, RATE= (messages per second; 0: unlimited). At the
end the server is alive, its weights are the sum of the honest pushes, it has no more descriptors than before and little
more memory.
"""

import random
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import psutil
import torch
import zmq

from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from benchmarks.trials.junk import Junk
from benchmarks.trials.mutations import Mutations
from tests.integration.integer_worker import SCHEMA, joined
from tests.integration.processes import status_of, wait_for, weights_of

CONNECTIONS = 32  # at a time
MESSAGES_EACH = 60  # of a connection; then it is closed
MESSAGES_TO_JUNK = 100  # messages per malformed connection
OVERSIZED = 20_000  # messages per frame that is too long
STRETCHES = 20  # parts of the load; memory is measured after each
# Queues of connections that are served late, and tables, are bounded. Once they are full, memory must hardly grow.
MOST_GROWTH_MIB = 256
MOST_LATE_GROWTH_MIB = 32
FIRST_PUSHES = 100  # of each honest worker, before the first malformed message
PAUSE_SECONDS = 0.002  # between two of its pushes


class Honest:
    """A worker in a thread that pushes integers until it is stopped; `total` is their sum."""

    def __init__(self, endpoint: str, name: str, seed: int) -> None:
        self.total, self.pushes = np.zeros(SCHEMA.size), 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._push, args=(endpoint, name, seed), daemon=True)
        self._thread.start()

    def finish(self) -> np.ndarray:
        """The sum of its pushes."""
        self._is_over.set()
        self._thread.join()
        return self.total

    def _push(self, endpoint: str, name: str, seed: int) -> None:
        parameters, newest, connections = joined(endpoint, name, SCHEMA)
        drawn = np.random.default_rng(seed)
        while not self._is_over.is_set():
            gradient = drawn.integers(-9, 10, size=SCHEMA.size).astype(np.float32)
            newest = parameters.push_pull(torch.from_numpy(gradient), computed_on=newest, steps=1)
            assert newest.settled is not None
            assert newest.settled.verdict in ("applied", "duplicate"), newest.settled
            self.total += gradient
            self.pushes += 1
            time.sleep(PAUSE_SECONDS)
        connections.close("the trial is over")


class FuzzClients:
    """Many connections that send malformed messages."""

    def __init__(self, endpoint: str, seed: int) -> None:
        self._endpoint = endpoint
        self._random = random.Random(seed)
        self._mutations = Mutations(SCHEMA, seed)
        self._context = zmq.Context()
        self._sockets: list[tuple[zmq.Socket[bytes], int]] = []  # and how many messages each may still send
        self.junk = Junk(endpoint, seed)
        self.sent = self.connections = 0

    def send(self, messages: int, *, rate: int) -> None:
        began = time.monotonic()
        for number in range(messages):
            if rate and (ahead := number / rate - (time.monotonic() - began)) > 0.01:
                time.sleep(ahead)
            if number % MESSAGES_TO_JUNK == 0:
                self.junk.one_more()
            frames = self._mutations.next()
            if number % OVERSIZED == OVERSIZED - 1:
                frames.append(bytes(17 * 2**20))
            self._send(frames)

    def close(self) -> None:
        self.junk.close()
        self._context.destroy(linger=1000)

    def _send(self, frames: list[bytes]) -> None:
        while len(self._sockets) < CONNECTIONS:
            self._sockets.append((self._connected(), self._random.randrange(1, MESSAGES_EACH)))
        at = self._random.randrange(CONNECTIONS)
        socket, left = self._sockets[at]
        socket.send_multipart(frames)  # blocks while the server's queue is full
        self.sent += 1
        while socket.poll(0):
            socket.recv_multipart()
        self._sockets[at] = (socket, left - 1)
        if left <= 1:
            self._sockets.pop(at)[0].close(linger=1000)

    def _connected(self) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDTIMEO, 10_000)
        socket.connect(f"tcp://{self._endpoint}")
        self.connections += 1
        if self._random.random() < 0.7:
            socket.send_multipart(self._mutations.hello())
        return socket


def trial(*, seed: int, messages: int, rate: int) -> dict[str, float]:
    """Figures by name; `crashes`, `lost` and `leaked` must be 0."""
    with programs_of_a_trial() as programs:
        server, endpoint = programs.start_server("--checkpoint-seconds", "2")
        honest = [Honest(endpoint, f"honest-{number}", seed + number) for number in range(2)]
        wait_for(lambda: min(one.pushes for one in honest) >= FIRST_PUSHES, program=server)
        process = psutil.Process(server.process.pid)
        rss, descriptors = process.memory_info().rss, process.num_fds()
        began = time.monotonic()
        clients, resident = FuzzClients(endpoint, seed), []
        for _ in range(STRETCHES):
            clients.send(messages // STRETCHES, rate=rate)
            resident.append((process.memory_info().rss - rss) / 2**20)
        seconds = time.monotonic() - began
        clients.close()
        lost = _lost(np.sum([one.finish() for one in honest], axis=0), endpoint)
        status = status_of(endpoint)
        return {
            "seed": seed,
            "messages": clients.sent,
            "seconds": seconds,
            "connections": clients.connections,
            "malformed_connections": clients.junk.connections,
            "refused": sum(status.refused.values()),
            "updates": status.updates,
            "crashes": int(server.process.poll() is not None),
            "lost": lost,
            "leaked": _leaked(process, descriptors),
            "rss_growth_mib": max(resident),
            "rss_late_growth_mib": _late_growth(resident),
        }


def _lost(pushed: np.ndarray, endpoint: str) -> int:
    """The distance of the weights from the sum of the honest pushes."""
    return int(np.abs(weights_of(endpoint, SCHEMA.size).numpy() + pushed).sum())


def _late_growth(resident: Sequence[float]) -> float:
    """Growth from the second quarter to the last one."""
    quarter = len(resident) // 4
    return float(np.median(resident[-quarter:]) - np.median(resident[quarter : 2 * quarter]))


def _leaked(process: psutil.Process, before: int) -> int:
    """Additional descriptors, after the server has had time to notice closed connections."""
    deadline = time.monotonic() + 60
    while (more := process.num_fds() - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return int(max(0, more))


def main() -> int:
    found = trial(**sizes(seed=0, messages=1_000_000, rate=2000))
    return report(
        found,
        {
            "the server lives": found["crashes"] > 0,
            "the sum of the honest workers is exact": found["lost"] > 0,
            "no descriptor is leaked": found["leaked"] > 0,
            f"memory grows by less than {MOST_GROWTH_MIB} MiB": found["rss_growth_mib"] >= MOST_GROWTH_MIB,
            "and does not grow on and on": found["rss_late_growth_mib"] >= MOST_LATE_GROWTH_MIB,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
