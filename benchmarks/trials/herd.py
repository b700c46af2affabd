"""
Many short-lived workers in one process, made of sockets and messages alone, so that a few hundred cost little.

Run it as a module: herd HOST:PORT FIRST COUNT NAMES SEED. COUNT workers live at a time, under NAMES different names
from number FIRST on. Each worker joins, pushes zeros for some seconds, and leaves: with GOODBYE, silently, or after a
malformed message. The program runs until it is killed.
"""

import contextlib
import random
import secrets
import sys
import time
from typing import Any

import msgpack
import msgspec
import numpy as np
import zmq

from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import PROTOCOL_TAG

SCHEMA = Schema([TensorSpec("sum", (1000,))])
ZEROS = np.zeros(SCHEMA.size, dtype="<f4").tobytes()
PUSH_SECONDS = 1.0  # between two pushes of a worker
LONGEST_LIFE = 10  # pushes


class Life:
    """One worker from HELLO to its end."""

    def __init__(self, context: "zmq.Context[Any]", server: str, name: str, drawn: random.Random, now: float) -> None:
        self.name = name
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 100)
        self.socket.connect(f"tcp://{server}")
        self._random = drawn
        self._request = self._sequence = self._have_version = self._have_epoch = 0
        self._pushes_left = drawn.randrange(1, LONGEST_LIFE)
        self._due = now + drawn.uniform(0, PUSH_SECONDS)
        run = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
        who = {"worker_id": name, "secret": secrets.token_hex(16), "protocols": [1, 1]}
        self._send("HELLO", **who, proposed_run=run)
        self._send("SEED", ZEROS, schema=msgspec.to_builtins(SCHEMA.specs))

    def receive(self) -> None:
        while self.socket.poll(0):
            reply = msgpack.unpackb(self.socket.recv_multipart()[1])
            if reply["type"] in ("WEIGHTS", "NOT_MODIFIED"):
                self._have_version, self._have_epoch = reply["version"], reply["epoch"]

    def live(self, now: float) -> bool:
        """Push if a push is due. Returns whether the worker lives on."""
        if now < self._due:
            return True
        self._due = now + PUSH_SECONDS
        if self._pushes_left == 0:
            self._leave()
            return False
        self._pushes_left -= 1
        self._sequence += 1
        what = {"sequence": self._sequence, "computed_on": self._have_version, "epoch": self._have_epoch}
        have = {"have_version": self._have_version, "have_epoch": self._have_epoch}
        self._send("PUSH", ZEROS, weight_codec="float32", schema_hash=SCHEMA.hash, steps=1, **what, **have)
        meters = {f"meter {number}": self._random.random() for number in range(10)}
        self._send("REPORT", sequence=self._sequence, episodes=[[1.0, 10]], meters=meters)
        return True

    def _leave(self) -> None:
        how = self._random.randrange(3)
        if how == 0:
            self._send("GOODBYE", reason="enough")
        elif how == 1:
            self._send("NONSENSE")
        self.socket.close()

    def _send(self, kind: str, *vector: bytes, **fields: Any) -> None:
        self._request += 1
        header = msgpack.packb({"type": kind, "request": self._request, **fields})
        with contextlib.suppress(zmq.Again):  # the queue is full: this message is dropped
            self.socket.send_multipart([PROTOCOL_TAG, header, *vector], zmq.NOBLOCK)


def main(server: str, first: int, count: int, names: int, seed: int) -> None:
    context, drawn = zmq.Context(), random.Random(seed)
    context.setsockopt(zmq.MAX_SOCKETS, 10 * count + 100)
    free = [f"worker-{first + number}" for number in range(names)]
    lives: list[Life] = []
    while True:
        now = time.monotonic()
        for life in lives:
            life.receive()
            if not life.live(now):
                free.append(life.name)
        lives = [life for life in lives if not life.socket.closed]
        while len(lives) < count:
            name = free.pop(drawn.randrange(len(free)))
            lives.append(Life(context, server, name, drawn, now))
        time.sleep(0.02)


if __name__ == "__main__":
    server, *numbers = sys.argv[1:]
    main(server, *map(int, numbers))
