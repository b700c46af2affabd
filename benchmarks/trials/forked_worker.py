"""
A counting worker as a process of its own that starts in milliseconds: a fork of a process that has imported everything.

It adds 1 to a weight of its own with each push, and sleeps between pushes as if it played. It is a real client: real
sockets, resend buffer and lease; it leaves in order on SIGTERM, as rl-worker does. What it lacks is a game, a network,
and the seconds that an import of torch takes. The forking process must have one thread.
"""

import os
import secrets
import sys
import time

import numpy as np
import torch

from benchmarks.trials.swarm import schema_of
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.zmq_client import ZmqClient
from ps_common.program.reasons import die_with_parent
from ps_common.program.stop_signals import Interrupted, StopSignal, leave_at_once
from ps_common.settings.run_spec import Wire
from rl_worker.joining import LEAVE_SECONDS

PLAY_SECONDS = 0.05  # between two pushes


def fork_worker(server: str, name: str, slot: int, counters: np.ndarray) -> int:
    """Its process id. `counters` [WEIGHTS, 2] lies in shared memory: pushes begun and acknowledged, by slot."""
    leave_at_once()  # the worker inherits this until it has a StopSignal
    if (process := os.fork()) > 0:
        return process
    status = 1
    try:
        die_with_parent()
        _work(server, name, slot, counters)
        status = 0
    except Interrupted:  # it has not begun to push yet
        status = 0
    except BaseException as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(status)


def _work(server: str, name: str, slot: int, counters: np.ndarray) -> None:
    stop = StopSignal(raises=True)
    torch.set_num_threads(1)
    schema = schema_of(len(counters))
    run = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
    secret = secrets.token_hex(16)
    identity = Identity(worker_id=name, secret=secret, overrides={}, proposed_run=run, host="", environments=1)
    addresses = len(server.split(","))
    machine = ParameterClient(
        identity, patience_seconds=120, resend_bytes=2**24, addresses=addresses, now=time.monotonic()
    )
    client = ZmqClient(server, machine, postponing_signals=stop.postponed)
    parameters = RemoteParameters([client], schema, Wire())
    one = torch.zeros(schema.size)
    one[slot] = -1.0
    try:
        parameters.seed(torch.zeros(schema.size))
        newest = parameters.pull()
        with stop.grace(LEAVE_SECONDS):
            while not stop.is_set():
                time.sleep(PLAY_SECONDS)
                counters[slot, 0] += 1
                newest = parameters.push_pull(one, computed_on=newest, steps=1)
                assert newest.settled is not None
                assert newest.settled.verdict == "applied", newest.settled
                counters[slot, 1] += 1
    except Interrupted:
        pass
    finally:
        client.close("leaves")
