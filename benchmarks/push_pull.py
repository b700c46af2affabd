"""
Push a gradient, have RMSProp applied, pull the weights: our server against raw pyzmq and PyTorch RPC that do just that.

As a program: `push_pull.py KIND HOST:PORT PARAMETERS` is a client; KIND is ours (vectors in shared memory), wire (by
tcp), kept, not-kept, raw or not-modified. `push_pull.py serve PORT PARAMETERS` is the raw server. With a folder that
holds the pair of keys `bench` as the last argument, they talk over CURVE. `push_pull.py rpc HOST:PORT PARAMETERS RANK
CLIENTS` is a client of PyTorch RPC, and its server with rank 0.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import zmq
from torch import Tensor

from benchmarks.command_loop import serve_commands
from common import shared_memory
from common.buffer_pool import BufferPool
from common.curve import ClientKeys, read_pair
from common.run_spec import Wire
from common.tensors import Schema, TensorSpec
from rl_worker.parameter_client import ParameterClient
from rl_worker.remote_parameters import RemoteParameters
from rl_worker.zmq_client import ZmqClient

RESEND_BYTES = 2**28  # as the default of rl-worker


class TorchRmsProp:
    """The update as torch passes on the live weights; no checks, no snapshot."""

    def __init__(self, size: int) -> None:
        self.weights, self._mean_square, self._root = torch.zeros(size), torch.zeros(size), torch.zeros(size)

    def apply(self, gradient: Tensor) -> None:
        self._mean_square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        torch.add(self._mean_square, 0.1, out=self._root).sqrt_()
        self.weights.addcdiv_(gradient, self._root, value=-7e-4)


def keys_in(folder: str) -> ClientKeys | None:
    """One pair for both sides; "" is no folder, and no encryption."""
    if not folder:
        return None
    pair = read_pair("bench", Path(folder) / "bench.key_secret")
    return ClientKeys(pair.public, pair)


def raw_server(port: str, size: int, keys: str = "") -> None:
    """One frame of gradient in, RMSProp, one frame of the live weights out; no header."""
    server = TorchRmsProp(size)
    socket = zmq.Context().socket(zmq.ROUTER)
    if (lock := keys_in(keys)) is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, lock.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, lock.own.secret)
    socket.bind(f"tcp://127.0.0.1:{port}")
    view = server.weights.numpy().data
    while True:
        peer, frame = socket.recv_multipart(copy=False)
        server.apply(torch.frombuffer(frame.buffer, dtype=torch.float32))
        socket.send_multipart([peer, view], copy=False)


def raw_client(server: str, size: int, keys: str = "") -> None:
    """Sends a gradient and copies the weights that come back into place."""
    socket = zmq.Context().socket(zmq.DEALER)
    if (lock := keys_in(keys)) is not None:
        lock.lock(socket)
    socket.connect(f"tcp://{server}")
    gradient, weights = torch.full((size,), 1e-3), torch.zeros(size)

    def once() -> None:
        socket.send(gradient.numpy(), copy=False)
        weights.copy_(torch.frombuffer(socket.recv(copy=False).buffer, dtype=torch.float32))

    serve_commands(once)


_rpc_server: TorchRmsProp  # in the server's process
_rpc_lock = threading.Lock()


def rpc_push_pull(gradient: Tensor) -> Tensor:
    """What PyTorch RPC calls in the server's process."""
    with _rpc_lock:
        _rpc_server.apply(gradient)
        return _rpc_server.weights


def torch_rpc(server: str, size: int, number: str, clients: str) -> None:
    """PyTorch RPC as it comes: TensorPipe, which takes shared memory on one host. Rank 0 is the server."""
    from torch.distributed import rpc

    global _rpc_server
    rank = int(number)
    if rank == 0:
        _rpc_server = TorchRmsProp(size)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://{server}", num_worker_threads=4)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=int(clients) + 1, rpc_backend_options=options)
    if rank == 0:
        threading.Event().wait()
    gradient, weights = torch.full((size,), 1e-3), torch.zeros(size)

    def once() -> None:
        weights.copy_(rpc.rpc_sync("rank0", rpc_push_pull, args=(gradient,)))

    serve_commands(once)


def our_parameters(server: str, size: int, *, resend_bytes: int, keys: str = "") -> tuple[ZmqClient, RemoteParameters]:
    """A worker's connection to a server, with a vector of this size."""
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
    client = ZmqClient(server, machine, keys=keys_in(keys))
    client.welcome.result()
    return client, RemoteParameters(client, machine, Schema([TensorSpec("all", (size,))]), Wire())


def our_client(
    server: str,
    size: int,
    keys: str = "",
    *,
    push: bool = True,
    fresh: bool = False,
    by_memory: bool = False,
    resend_bytes: int = RESEND_BYTES,
) -> None:
    """
    The same with a worker's own parts; without `push`, it asks for weights that it has.

    `fresh` fills memory of its own for each gradient, as a trainer does whose pushes are kept.
    """
    if not by_memory:
        shared_memory.FOLDER = "/nowhere"
    _, parameters = our_parameters(server, size, resend_bytes=resend_bytes, keys=keys)
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
    kind, where, parameters, *more = sys.argv[1:]
    programs: dict[str, Callable[..., None]] = {
        "serve": raw_server,
        "raw": raw_client,
        "rpc": torch_rpc,
        # What keeping costs is the business of `kept` and `not-kept`.
        "ours": partial(our_client, by_memory=True, resend_bytes=0),
        "wire": partial(our_client, resend_bytes=0),
        "kept": partial(our_client, fresh=True),
        "not-kept": partial(our_client, fresh=True, resend_bytes=0),
        "not-modified": partial(our_client, push=False),
    }
    programs[kind](where, int(float(parameters)), *more)
