"""
A proxy between workers and a server: drops, duplicates, delays and so reorders messages, and cuts connections.
"""

import heapq
import itertools
import random
import threading
import time
from dataclasses import dataclass

import zmq

MOST_CONNECTIONS = 10_000  # connections of dead workers are never closed


@dataclass(frozen=True)
class Faults:
    """Shares of messages, and the longest delay of a message."""

    drop: float = 0.05
    duplicate: float = 0.05
    delay: float = 0.2
    longest_delay_seconds: float = 0.1


class Proxy:
    """Listens on `endpoint` and forwards to the server, in a thread of its own, until `close`."""

    def __init__(self, server: str, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._random = random.Random(seed)
        self._server = server
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MOST_CONNECTIONS)
        self._front = self._context.socket(zmq.ROUTER)
        self.endpoint = f"127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._upstream: dict[bytes, zmq.Socket[bytes]] = {}  # a connection to the server for each worker's
        self._later: list[tuple[float, int, zmq.Socket[bytes], list[bytes]]] = []
        self._order = itertools.count()
        self._cuts = 0
        self.passed = self.dropped = self.doubled = self.cut_off = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Cut a random connection to the server: its worker appears there on a new one."""
        self._cuts += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        names: dict[zmq.Socket[bytes], bytes] = {}
        while not self._over.is_set():
            for socket, _ in poller.poll(5):
                frames = socket.recv_multipart()
                if socket is self._front:
                    name, *message = frames
                    if name not in self._upstream:
                        upstream = self._context.socket(zmq.DEALER)
                        upstream.connect(f"tcp://{self._server}")
                        poller.register(upstream, zmq.POLLIN)
                        self._upstream[name], names[upstream] = upstream, name
                    self._carry(self._upstream[name], message)
                else:
                    self._carry(self._front, [names[socket], *frames])
            while self._cuts and self._upstream:
                self._cuts -= 1
                self.cut_off += 1
                upstream = self._upstream.pop(self._random.choice(sorted(self._upstream)))
                poller.unregister(upstream)
                del names[upstream]
                self._later = [entry for entry in self._later if entry[2] is not upstream]
                heapq.heapify(self._later)
                upstream.close(linger=0)
            while self._later and self._later[0][0] <= time.monotonic():
                self._send(*heapq.heappop(self._later)[2:])
        self._context.destroy(linger=0)

    def _carry(self, to: "zmq.Socket[bytes]", message: list[bytes]) -> None:
        faults, drawn = self._faults, self._random
        if drawn.random() < faults.drop:
            self.dropped += 1
            return
        copies = 1 + (drawn.random() < faults.duplicate)
        self.doubled += copies - 1
        for _ in range(copies):
            if drawn.random() < faults.delay:
                due = time.monotonic() + drawn.uniform(0, faults.longest_delay_seconds)
                heapq.heappush(self._later, (due, next(self._order), to, message))
            else:
                self._send(to, message)

    def _send(self, to: "zmq.Socket[bytes]", message: list[bytes]) -> None:
        self.passed += 1
        try:
            to.send_multipart(message, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.dropped += 1  # the queue is full, or the worker is gone
