"""
A second client, written from common/PROTOCOL.md with zmq, msgpack and numpy alone: fits a line to points.

Run it as a program: independent_client.py HOST:PORT NAME UPDATES SEED. Prints the weights it ends with.
"""

import hashlib
import secrets
import sys
from typing import Any

import msgpack
import numpy as np
import zmq

TAG = b"ps-rl/1"
TRUE_SLOPE, TRUE_OFFSET = np.array([2.0, -3.0]), 0.5


class Client:
    """One connection, one request at a time."""

    def __init__(self, server: str, name: str) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.connect(f"tcp://{server}")
        self.name = name
        self.requests = self.sequence = 0

    def ask(self, kind: str, vector: np.ndarray | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """One request and its reply: the header, and the bytes of a vector."""
        self.requests += 1
        header = {"type": kind, "request": self.requests, **fields}
        frames = [TAG, msgpack.packb(header)]
        if vector is not None:
            frames.append(vector.astype("<f4").tobytes())
        self.socket.send_multipart(frames)
        while True:
            assert self.socket.poll(10_000), f"no answer to {kind}"
            tag, head, *chunks = self.socket.recv_multipart()
            assert tag == TAG
            reply = msgpack.unpackb(head)
            if reply["type"] in ("REFUSED", "STOP"):
                raise RuntimeError(f"{reply.get('code', 'stop')}: {reply['reason']}")
            if reply["request"] == self.requests:
                return reply, b"".join(chunks)

    def join(self, schema: list[dict[str, Any]], first: np.ndarray) -> None:
        """HELLO and SEED."""
        proposed_run = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 0.1}}
        who = {"worker_id": self.name, "secret": secrets.token_hex(16), "protocols": [1, 1]}
        welcome, _ = self.ask("HELLO", **who, proposed_run=proposed_run)
        assert welcome["type"] == "WELCOME"
        assert "float32" in welcome["codecs"]
        self.ask("SEED", first, schema=schema)
        lines = "".join(f"{t['name']} {t['dtype']} {','.join(map(str, t['shape']))}\n" for t in schema)
        self.schema_hash = hashlib.sha256(lines.encode()).hexdigest()[:32]

    def pull(self) -> np.ndarray:
        """The newest weights."""
        self.have, chunk = self.ask("PULL")
        return np.frombuffer(chunk, "<f4").copy()

    def push_pull(self, gradient: np.ndarray, steps: int) -> np.ndarray:
        """Push a gradient computed on the newest weights; returns the newer ones."""
        self.sequence += 1
        self.have, chunk = self.ask(
            "PUSH",
            gradient,
            sequence=self.sequence,
            computed_on=self.have["version"],
            epoch=self.have["epoch"],
            weight_codec="float32",
            have_version=self.have["version"],
            have_epoch=self.have["epoch"],
            schema_hash=self.schema_hash,
            steps=steps,
        )
        assert self.have["settled"]["verdict"] == "applied", self.have
        return np.frombuffer(chunk, "<f4").copy()

    def leave(self) -> None:
        """GOODBYE."""
        self.ask("GOODBYE", reason="fitted")
        self.socket.close()


def fit(server: str, name: str, updates: int, seed: int) -> np.ndarray:
    """Least squares by gradient descent: y = slope · x + offset, from random points. Returns [slope, offset]."""
    client = Client(server, name)
    schema = [
        {"name": "slope", "shape": [2], "dtype": "float32"},
        {"name": "offset", "shape": [], "dtype": "float32"},
    ]
    client.join(schema, np.zeros(3))
    random = np.random.default_rng(seed)
    weights = client.pull()
    for _ in range(updates):
        x = random.normal(size=(16, 2))
        error = x @ weights[:2] + weights[2] - (x @ TRUE_SLOPE + TRUE_OFFSET)
        gradient = np.append(error @ x, error.sum()) / len(x)
        weights = client.push_pull(gradient, steps=len(x))
    client.leave()
    return weights


if __name__ == "__main__":
    server, name, updates, seed = sys.argv[1:]
    print(*fit(server, name, int(updates), int(seed)))
