"""
The same round trip over other transports: push a gradient, apply RMSProp, pull the weights.

As a program: `alternatives.py raw serve PORT PARAMETERS` and `alternatives.py raw HOST:PORT PARAMETERS` are pyzmq
without a header, over CURVE if the last argument is a folder of keys. PyTorch RPC: `alternatives.py rpc HOST:PORT
PARAMETERS RANK CLIENTS`, where rank 0 is the server.
"""

import os
import sys
import threading
from pathlib import Path

import torch
import zmq
from torch import Tensor

from benchmarks.command_loop import serve_commands
from ps_common.program.resources import keep_freed_memory
from ps_common.sockets.curve import ClientKeys, read_pair


class TorchRmsProp:
    """The update as a few torch operations on the live weights, without checks and without snapshots."""

    def __init__(self, size: int) -> None:
        self.weights, self._mean_square, self._root = torch.zeros(size), torch.zeros(size), torch.zeros(size)

    def apply(self, gradient: Tensor) -> None:
        self._mean_square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        torch.add(self._mean_square, 0.1, out=self._root).sqrt_()
        self.weights.addcdiv_(gradient, self._root, value=-7e-4)


def vectors(size: int) -> tuple[Tensor, Tensor]:
    """A client's gradient, which is refilled for every push, and its weights."""
    return torch.zeros(size), torch.zeros(size)


def keys_in(folder: str) -> ClientKeys | None:
    """One key pair for both sides; None, and no encryption, if `folder` is empty."""
    if not folder:
        return None
    pair = read_pair("bench", Path(folder) / "bench.key_secret")
    return ClientKeys(pair.public, pair)


def raw_server(port: str, size: int, keys: str = "") -> None:
    """One frame of gradient in, RMSProp, one frame of the live weights out; no header."""
    keep_freed_memory()  # as our programs do
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
    keep_freed_memory()
    socket = zmq.Context().socket(zmq.DEALER)
    if (lock := keys_in(keys)) is not None:
        lock.lock(socket)
    socket.connect(f"tcp://{server}")
    gradient, weights = vectors(size)

    def once() -> None:
        socket.send(gradient.fill_(1e-3).numpy().data, copy=False)
        weights.copy_(torch.frombuffer(socket.recv(copy=False).buffer, dtype=torch.float32))

    serve_commands(once)


_rpc_server: TorchRmsProp  # in the server's process
_rpc_lock = threading.Lock()


def rpc_push_pull(gradient: Tensor) -> Tensor:
    """Runs in the server's process, called over PyTorch RPC."""
    with _rpc_lock:
        _rpc_server.apply(gradient)
        return _rpc_server.weights


def torch_rpc(server: str, size: int, number: str, clients: str) -> None:
    """PyTorch RPC with its defaults: TensorPipe, which uses shared memory on one host. Rank 0 is the server."""
    from torch.distributed import rpc

    global _rpc_server
    rank = int(number)
    if rank == 0:
        _rpc_server = TorchRmsProp(size)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://{server}", num_worker_threads=4)
    rpc.init_rpc(  # type: ignore[no-untyped-call]
        f"rank{rank}", rank=rank, world_size=int(clients) + 1, rpc_backend_options=options
    )
    if rank == 0:
        threading.Event().wait()
    gradient, weights = vectors(size)

    def once() -> None:
        weights.copy_(rpc.rpc_sync("rank0", rpc_push_pull, args=(gradient.fill_(1e-3),)))

    serve_commands(once)


if __name__ == "__main__":
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["rpc", where, parameters, rank, clients]:
            torch_rpc(where, int(parameters), rank, clients)
        case ["raw", "serve", port, parameters, *keys]:
            raw_server(port, int(parameters), *keys)
        case ["raw", where, parameters, *keys]:
            raw_client(where, int(parameters), *keys)
