"""
Push a gradient, have RMSProp applied, pull the weights: our server against raw pyzmq that does just that.

As a program: `push_pull.py ours|kept|not-kept|raw|not-modified HOST:PORT PARAMETERS` is a client, and
`push_pull.py serve PORT PARAMETERS` the raw server.
"""

import os
import sys
import time
from functools import partial

import torch
import zmq

from benchmarks.command_loop import serve_commands
from common.buffer_pool import BufferPool
from common.run_spec import Wire
from common.tensors import Schema, TensorSpec
from rl_worker.parameter_client import ParameterClient
from rl_worker.remote_parameters import RemoteParameters
from rl_worker.zmq_client import ZmqClient

RESEND_BYTES = 2**28  # as the default of rl-worker


def raw_server(port: str, size: int) -> None:
    """One frame of gradient in, RMSProp, one frame of the live weights out; no header, no checks, no snapshot."""
    weights, mean_square, root = torch.zeros(size), torch.zeros(size), torch.zeros(size)
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(f"tcp://127.0.0.1:{port}")
    view = weights.numpy().data
    while True:
        peer, frame = socket.recv_multipart(copy=False)
        gradient = torch.frombuffer(frame.buffer, dtype=torch.float32)
        mean_square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        torch.add(mean_square, 0.1, out=root).sqrt_()
        weights.addcdiv_(gradient, root, value=-7e-4)
        socket.send_multipart([peer, view], copy=False)


def raw_client(server: str, size: int) -> None:
    """Sends a gradient and copies the weights that come back into place."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(f"tcp://{server}")
    gradient, weights = torch.full((size,), 1e-3), torch.zeros(size)

    def once() -> None:
        socket.send(gradient.numpy(), copy=False)
        weights.copy_(torch.frombuffer(socket.recv(copy=False).buffer, dtype=torch.float32))

    serve_commands(once)


def our_client(server: str, size: int, *, push: bool, fresh: bool = False, resend_bytes: int = RESEND_BYTES) -> None:
    """
    The same with a worker's own parts; without `push`, it asks for weights that it has.

    `fresh` fills memory of its own for each gradient, as a trainer does whose pushes are kept.
    """
    machine = ParameterClient(
        worker_id=f"bench-{os.getpid()}",
        incarnation=time.time_ns(),
        wishes={},
        proposal={},
        host="",
        environments=0,
        patience_seconds=60,
        resend_bytes=resend_bytes,
        now=time.monotonic(),
    )
    client = ZmqClient(server, machine)
    client.welcome.result()
    parameters = RemoteParameters(client, machine, Schema([TensorSpec("all", (size,))]), Wire())
    gradient, weights = torch.full((size,), 1e-3), torch.zeros(size)
    parameters.seed(weights)
    newest = parameters.pull()
    pool = BufferPool(size, kept=None)

    def once() -> None:
        nonlocal newest, gradient
        if fresh:
            gradient = torch.from_numpy(pool.take()).fill_(1e-3)
        newest = parameters.push_pull(gradient, computed_on=newest, steps=1) if push else parameters.pull(newest)
        if newest.weights is not None:
            weights.copy_(newest.weights)

    serve_commands(once)


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, where, parameters = sys.argv[1], sys.argv[2], int(float(sys.argv[3]))
    programs = {
        "serve": raw_server,
        "raw": raw_client,
        "ours": partial(our_client, push=True, resend_bytes=0),  # what keeping costs is the business of the next two
        "kept": partial(our_client, push=True, fresh=True),
        "not-kept": partial(our_client, push=True, fresh=True, resend_bytes=0),
        "not-modified": partial(our_client, push=False),
    }
    programs[kind](where, parameters)
