"""
Many synthetic workers in one process, made of messages and sockets alone: `many.py HOST:PORT PARAMETERS COUNT`.

Each worker has one push in flight at any time, over TCP. The figure counts the pushes of all workers together.
"""

import os
import secrets
import sys
from typing import Any

import numpy as np
import zmq

from benchmarks.command_loop import serve_commands
from ps_common.protocol import messages
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import read_to_worker, to_frames


class Synthetic:
    """One worker, which pushes again as soon as a reply arrives."""

    def __init__(self, context: zmq.Context[Any], server: str, schema: Schema, number: int) -> None:
        self._schema, self._requests, self._sequence = schema, 0, 0
        self._gradient = np.full(schema.size, 1e-3, dtype="<f4").data.cast("B")
        self.socket = context.socket(zmq.DEALER)
        self.socket.connect(f"tcp://{server}")
        name = f"many-{os.getpid()}-{number}"
        secret = secrets.token_hex(16)
        self._send(messages.Hello(request=1, worker_id=name, secret=secret, protocols=(1, 1), proposed_run={}))
        self._send(messages.Seed(request=2, schema=schema.specs), self._gradient)
        while not isinstance(self._receive(), messages.Seeded):
            pass
        self._push(messages.Weights(request=0, epoch=0, version=0, global_steps=0))

    def push_again(self) -> None:
        """Receive the reply to the last push, and push."""
        reply = self._receive()
        assert isinstance(reply, messages.Weights | messages.NotModified), reply
        self._push(reply)

    def _push(self, have: messages.Weights | messages.NotModified) -> None:
        self._sequence += 1
        push = messages.Push(
            request=2 + self._sequence,
            sequence=self._sequence,
            computed_on=have.version,
            have_version=have.version,
            epoch=have.epoch,
            have_epoch=have.epoch,
            schema_hash=self._schema.hash,
            weight_codec="float32",
            steps=1,
        )
        self._send(push, self._gradient)

    def _send(self, message: messages.ToServer, *vector: memoryview) -> None:
        self.socket.send_multipart(to_frames(message, vector), copy=False)

    def _receive(self) -> messages.ToWorker:
        return read_to_worker([frame.buffer for frame in self.socket.recv_multipart(copy=False)])[0]


def main(server: str, size: int, count: int) -> None:
    context = zmq.Context()
    context.setsockopt(zmq.MAX_SOCKETS, 4096)
    schema = Schema([TensorSpec("all", (size,))])
    workers = [Synthetic(context, server, schema, number) for number in range(count)]
    by_socket = {worker.socket: worker for worker in workers}
    poller = zmq.Poller()
    for socket in by_socket:
        poller.register(socket, zmq.POLLIN)
    ready: list[tuple[Any, int]] = []

    def once() -> None:
        if not ready:
            ready.extend(poller.poll())
        by_socket[ready.pop()[0]].push_again()

    serve_commands(once)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
