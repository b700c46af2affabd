"""
The same round trip over other transports: push a gradient, apply RMSProp, pull the weights.

As a program: `alternatives.py KIND serve PORT PARAMETERS` and `alternatives.py KIND HOST:PORT PARAMETERS`. KIND is raw
(pyzmq without a header; over CURVE if the last argument is a folder of keys), grpc, redis (redis-server runs at PORT,
and a process of ours applies the gradients), or memory (one segment per client and a byte as signal: the ceiling).
PyTorch RPC: `alternatives.py rpc HOST:PORT PARAMETERS RANK CLIENTS`, where rank 0 is the server.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
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


# -- raw pyzmq ------------------------------------------------------------------------------------------------------


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


# -- gRPC -----------------------------------------------------------------------------------------------------------

GRPC_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def grpc_server(port: str, size: int, _: str = "") -> None:
    """One call with bytes in and bytes out; no schema."""
    import grpc

    server, lock = TorchRmsProp(size), threading.Lock()

    def push_pull(request: bytes, context: Any) -> bytes:
        with lock:
            server.apply(torch.frombuffer(bytearray(request), dtype=torch.float32))
            return server.weights.numpy().tobytes()

    handler = grpc.unary_unary_rpc_method_handler(push_pull)
    serving = grpc.server(ThreadPoolExecutor(4), options=GRPC_OPTIONS)
    serving.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("server", {"push_pull": handler})])
    serving.add_insecure_port(f"127.0.0.1:{port}")
    serving.start()
    serving.wait_for_termination()


def grpc_client(server: str, size: int, _: str = "") -> None:
    import grpc

    call = grpc.insecure_channel(server, options=GRPC_OPTIONS).unary_unary("/server/push_pull")
    gradient, weights = vectors(size)

    def once() -> None:
        reply = call(gradient.fill_(1e-3).numpy().tobytes(), wait_for_ready=True)
        weights.numpy()[:] = np.frombuffer(reply, dtype=np.float32)

    serve_commands(once)


# -- Redis ----------------------------------------------------------------------------------------------------------


def redis_server(port: str, size: int, _: str = "") -> None:
    """Redis, and a process that pops gradients from a list and appends the weights to a list of the pushing client."""
    import redis

    flags = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    running = subprocess.Popen(["redis-server", *flags], stdout=subprocess.DEVNULL)
    server, database = TorchRmsProp(size), cast("Any", redis.Redis(port=int(port)))  # its types allow for asyncio
    try:
        while True:
            with contextlib.suppress(redis.exceptions.ConnectionError):
                pushed = database.blpop(["gradients"])
                name, gradient = pushed[1][:16], pushed[1][16:]
                server.apply(torch.frombuffer(bytearray(gradient), dtype=torch.float32))
                database.rpush(name, server.weights.numpy().tobytes())
    finally:
        running.kill()
        running.wait()


def redis_client(server: str, size: int, _: str = "") -> None:
    import redis

    host, _, port = server.partition(":")
    database, name = cast("Any", redis.Redis(host, int(port))), f"{os.getpid():016d}".encode()
    gradient, weights = vectors(size)

    def once() -> None:
        database.rpush("gradients", name + gradient.fill_(1e-3).numpy().tobytes())
        weights.numpy()[:] = np.frombuffer(database.blpop([name])[1], dtype=np.float32)

    while True:
        try:
            database.ping()
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.1)
    serve_commands(once)


# -- shared memory alone --------------------------------------------------------------------------------------------


def memory_of(pid: str, size: int, mode: Any) -> tuple[Tensor, Tensor]:
    """A client's gradient and weights, in a file that both sides map."""
    both = np.memmap(f"/dev/shm/bench-{pid}", dtype=np.float32, mode=mode, shape=(2, size))
    return torch.from_numpy(both[0]), torch.from_numpy(both[1])


def memory_server(port: str, size: int, _: str = "") -> None:
    """A client sends the name of its file once, then one byte per gradient that it has written into the file."""
    server, lock = TorchRmsProp(size), threading.Lock()

    def serve(connection: socket.socket) -> None:
        gradient, weights = memory_of(connection.recv(100).decode(), size, "r+")
        connection.sendall(b".")
        while connection.recv(1):
            with lock:
                server.apply(gradient)
                weights.copy_(server.weights)
            connection.sendall(b".")

    with socket.create_server(("127.0.0.1", int(port))) as listening:
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


def memory_client(server: str, size: int, _: str = "") -> None:
    host, _, port = server.partition(":")
    shared_gradient, shared_weights = memory_of(str(os.getpid()), size, "w+")
    weights = vectors(size)[1]
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(str(os.getpid()).encode())
    connection.recv(1)
    os.unlink(f"/dev/shm/bench-{os.getpid()}")

    def once() -> None:
        shared_gradient.fill_(1e-3)
        connection.sendall(b".")
        connection.recv(1)
        weights.copy_(shared_weights)

    serve_commands(once)


# -- PyTorch RPC ----------------------------------------------------------------------------------------------------

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


SERVERS = {"raw": raw_server, "grpc": grpc_server, "redis": redis_server, "memory": memory_server}
CLIENTS = {"raw": raw_client, "grpc": grpc_client, "redis": redis_client, "memory": memory_client}

if __name__ == "__main__":
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["rpc", where, parameters, rank, clients]:
            torch_rpc(where, int(parameters), rank, clients)
        case [kind, "serve", port, parameters, *keys]:
            SERVERS[kind](port, int(parameters), *keys)
        case [kind, where, parameters, *keys]:
            CLIENTS[kind](where, int(parameters), *keys)
