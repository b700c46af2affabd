"""
A worker without a game: pushes integers whose sum is exact, as fast as the server takes them.

Run it as a module: integer_worker HOST:PORT[,HOST:PORT] NAME UPDATES SEED [PARAMETERS [USER]]. Prints the sum of all
that it has pushed, and stays: it has all that the server may still lose. With a USER (a number) it runs as that one.
KEYS in the environment is the folder of the keys that `ps-ctl keygen` has made, for a locked server.
"""

import encodings.idna  # noqa: F401  (resolving a name loads it, and another user may not be able to read the library)
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.shard_connections import ShardConnections
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import Wire
from ps_common.sockets.curve import ClientKeys, CurveFlags

PARAMETERS = 100
SCHEMA = Schema([TensorSpec("sum", (PARAMETERS,))])


def joined(
    server: str, name: str, schema: Schema, *, keys: ClientKeys | None = None, wire: Wire | None = None, **sections: Any
) -> tuple[RemoteParameters, Newest, ShardConnections]:
    """
    A worker of a run whose weights begin with 0 and move by just what is pushed; its first pull; and its connections,
    which a process that goes on without it closes.

    `sections` are added to the run that it proposes.
    """
    proposed: Any = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}} | sections
    connections = ShardConnections(name, server, proposed_run=proposed, patience_seconds=120, resend_mib=16, keys=keys)
    connections.join()
    parameters = connections.parameters(schema, wire or Wire())
    parameters.seed(torch.zeros(schema.size))
    return parameters, parameters.pull(), connections


def keys_of(folder: Path, name: str) -> ClientKeys:
    """The keys of one who is authorised at the locked server whose keys are in this folder."""
    keys = CurveFlags(curve_server_key=folder / "server.key", curve_secret=folder / f"{name}.key_secret").client_keys()
    assert keys is not None
    return keys


def told(output: str) -> list[int]:
    """The sum of what a worker has pushed, by what it has printed; [] while it pushes."""
    lines = [line.split() for line in output.splitlines() if line.startswith("pushed")]
    return [int(number) for number in lines[0][1:]] if lines else []


def main(server: str, name: str, updates: int, seed: int, size: int = PARAMETERS, user: int | None = None) -> None:
    if user is not None:
        os.setuid(user)
    keys = keys_of(Path(os.environ["KEYS"]), "worker") if "KEYS" in os.environ else None
    parameters, newest, _ = joined(server, name, Schema([TensorSpec("sum", (size,))]), keys=keys)
    drawn = np.random.default_rng(seed)
    total = np.zeros(size)
    for _ in range(updates):
        gradient = drawn.integers(-9, 10, size=size).astype(np.float32)
        total += gradient
        newest = parameters.push_pull(torch.from_numpy(gradient), computed_on=newest, steps=1)
        assert newest.settled is not None
        assert newest.settled.verdict in ("applied", "duplicate")
    print("pushed", *total.astype(int), flush=True)
    signal.pause()


if __name__ == "__main__":
    server, name, *numbers = sys.argv[1:]
    main(server, name, *map(int, numbers))
