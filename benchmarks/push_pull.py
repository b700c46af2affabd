"""
Push a gradient, apply RMSProp, pull the weights: a client of our server, made of a worker's own parts.

As a program: `push_pull.py KIND HOST:PORT PARAMETERS [KEYS]`. KIND is ours (vectors in shared memory), wire (over TCP)
or not-modified. Pushes are not kept for a restored server. With a folder KEYS that contains the key pair `bench`, it
uses CURVE.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.alternatives import keys_in
from benchmarks.command_loop import serve_commands
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.zmq_client import ZmqClient
from ps_common.buffer_pool import BufferPool
from ps_common.program.resources import keep_freed_memory
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import Wire
from ps_common.sockets import shared_memory


def our_client(
    server: str,
    size: int,
    keys: str = "",
    *,
    push: bool = True,
    by_memory: bool = False,
) -> None:
    """Serve commands with one push and pull per call; without `push`, with a pull that is answered NOT_MODIFIED."""
    if not by_memory:
        shared_memory.FOLDER = "/nowhere"
    who: Any = {"worker_id": f"bench-{os.getpid()}", "secret": secrets.token_hex(16), "host": "", "environments": 0}
    identity = Identity(overrides={}, proposed_run={}, **who)
    machine = ParameterClient(identity, patience_seconds=60, resend_bytes=0, now=time.monotonic())
    client = ZmqClient(server, machine, keys=keys_in(keys))
    client.welcome.result()
    parameters = RemoteParameters([client], Schema([TensorSpec("all", (size,))]), Wire())
    weights = torch.zeros(size)
    parameters.seed(weights)
    newest = parameters.pull()
    # As in a trainer each gradient is filled anew, in memory that a server on this host can map.
    pool = BufferPool(size, kept=None, elsewhere=client.shared_array)

    def once() -> None:
        nonlocal newest
        if push:
            gradient = torch.from_numpy(pool.take()).fill_(1e-3)
            newest = parameters.push_pull(gradient, computed_on=newest, steps=1)
        else:
            newest = parameters.pull(newest)
        if newest.weights is not None:
            weights.copy_(newest.weights)

    serve_commands(once)


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()
    kind, where, parameters, *more = sys.argv[1:]
    programs: dict[str, Callable[..., None]] = {
        "ours": partial(our_client, by_memory=True),
        "wire": our_client,
        "not-modified": partial(our_client, push=False),
    }
    programs[kind](where, int(float(parameters)), *more)
