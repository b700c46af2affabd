"""
Fuzzing of a real server: malformed messages and connections, while two honest workers push integers.

Run it as a module, with sizes in the environment: SEED=, MESSAGES=, RATE= (messages per second; 0: unlimited). At the
end the server is alive, its weights are the sum of the honest pushes, it has no more descriptors than before and little
more memory. The latency of the honest workers is bounded only at a rate that leaves the cores idle most of the time.
"""

import random
import sys
import time
from collections.abc import Sequence

import numpy as np
import psutil
import zmq

from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from benchmarks.trials.honest import times_of
from benchmarks.trials.junk import Junk
from benchmarks.trials.mutations import Mutations
from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Programs, status_of, wait_for, weights_of

CONNECTIONS = 32  # at a time
MESSAGES_EACH = 60  # of a connection; then it is closed
MESSAGES_TO_JUNK = 100  # messages per malformed connection
OVERSIZED = 20_000  # messages per frame that is too long
STRETCHES = 20  # parts of the load; memory is measured after each
# Queues of connections that are served late, and tables, are bounded. Once they are full, memory must hardly grow.
MOST_GROWTH_MIB = 256
MOST_LATE_GROWTH_MIB = 32
MOST_P99_RATIO = 2.0
QUIET_PUSHES = 500  # of each worker, before the first malformed message


class Honest:
    """Two honest workers, and the latency of their pushes."""

    def __init__(self, programs: Programs, endpoint: str, seed: int) -> None:
        self._stop = programs.folder / "stop"
        self._times = [programs.folder / f"times-{number}" for number in range(2)]
        self._programs = [
            programs.start("benchmarks.trials.honest", endpoint, f"w{n}", str(seed + n), str(path), str(self._stop))
            for n, path in enumerate(self._times)
        ]

    def wait_until_served(self, pushes: int) -> None:
        for program, path in zip(self._programs, self._times, strict=True):
            wait_for(lambda p=path: p.exists() and len(times_of(p)) >= pushes, program=program)  # type: ignore[misc]

    def p99_seconds(self, since: float, until: float) -> float:
        """Of the pushes that were answered in that interval; NaN if there was none."""
        times = np.concatenate([times_of(path) for path in self._times])
        took = times[(times[:, 0] >= since) & (times[:, 0] < until), 1]
        return float(np.percentile(took, 99)) if len(took) else np.nan

    def finish(self) -> np.ndarray:
        """The sum of all their pushes."""
        self._stop.touch()
        pushed = [wait_for(lambda p=p: told(p.output), program=p) for p in self._programs]  # type: ignore[misc]
        return np.asarray(np.sum(pushed, axis=0))


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
        honest = Honest(programs, endpoint, seed)
        honest.wait_until_served(100)
        quiet = time.monotonic()
        honest.wait_until_served(100 + QUIET_PUSHES)
        process = psutil.Process(server.process.pid)
        rss, descriptors = process.memory_info().rss, process.num_fds()
        loud = time.monotonic()
        clients, resident = FuzzClients(endpoint, seed), []
        for _ in range(STRETCHES):
            clients.send(messages // STRETCHES, rate=rate)
            resident.append((process.memory_info().rss - rss) / 2**20)
        over = time.monotonic()
        clients.close()
        lost = _lost(honest.finish(), endpoint)
        status = status_of(endpoint)
        return {
            "seed": seed,
            "messages": clients.sent,
            "seconds": over - loud,
            "connections": clients.connections,
            "malformed_connections": clients.junk.connections,
            "refused": sum(status.refused.values()),
            "updates": status.updates,
            "crashes": int(server.process.poll() is not None),
            "lost": lost,
            "leaked": _leaked(process, descriptors),
            "rss_growth_mib": max(resident),
            "rss_late_growth_mib": _late_growth(resident),
            "p99_ms_before": 1000 * honest.p99_seconds(quiet, loud),
            "p99_ms": 1000 * honest.p99_seconds(loud, over),
            "p99_ratio": honest.p99_seconds(loud, over) / honest.p99_seconds(quiet, loud),
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
            f"honest latency grows by less than {MOST_P99_RATIO} times": found["p99_ratio"] >= MOST_P99_RATIO,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
