"""
The time of each stage of one round trip, at the worker and at the server: `python -m benchmarks.stages [PARAMETERS]`.

Functions are wrapped in a clock; the time of an inner one is part of the outer one's. The table shows the 10th
percentile in microseconds, the time of an undisturbed call.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.push_pull import gradients, our_parameters
from benchmarks.servers import serving
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.segment_slots import SegmentSlots
from ps_client.shell.zmq_client import ZmqClient
from ps_common.program.resources import keep_freed_memory
from ps_common.protocol.codecs import Float32
from ps_common.sockets import shared_memory
from ps_server import cli
from ps_server.machine.parameter_server import ParameterServer
from ps_server.shell import zmq_server
from ps_server.shell.mapped_segments import MappedSegments
from ps_server.shell.zmq_server import ZmqServer
from ps_server.state import training_run
from ps_server.state.copy_on_write import CopyOnWriteVector
from ps_server.state.weight_store import WeightStore

TRIPS = 300
SERVER: list[tuple[str, Any, str]] = [
    ("server: one message", ZmqServer, "_handle"),
    ("server:   header to message", zmq_server, "read_to_server"),
    ("server:   the machine", ParameterServer, "receive"),
    ("server:     check of the gradient", training_run, "gradient_of"),
    ("server:     copy of weights that are in use", CopyOnWriteVector, "_move"),
    ("server:     RMSProp", WeightStore, "apply"),
    ("server:   reply", ZmqServer, "_send"),
    ("server:     weights into the slot", MappedSegments, "write_reply"),
]
WORKER: list[tuple[str, Any, str]] = [
    ("worker: push_pull", None, "trip"),
    ("worker:   call and send", ZmqClient, "call"),
    ("worker:     message to frames", SegmentSlots, "to_frames"),
    ("worker:   frames to message", SegmentSlots, "read"),
    ("worker:   the machine", ParameterClient, "receive"),
    ("worker:   vector from buffers", Float32, "decode"),
]

Times = dict[str, list[float]]


def clocked(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            times.append(time.perf_counter() - start)

    return timed


def clock_all(stages: list[tuple[str, Any, str]]) -> Times:
    times: Times = defaultdict(list)
    for name, owner, attribute in stages:
        if owner is not None:
            setattr(owner, attribute, clocked(getattr(owner, attribute), times[name]))
    return times


def low(times: Times) -> dict[str, float]:
    """Microseconds."""
    return {name: 1e6 * sorted(taken)[len(taken) // 10] for name, taken in times.items() if len(taken) > TRIPS // 2}


def serve(result: str, *flags: str) -> None:
    """In a process of its own: a ps-server that writes its times when it ends."""
    times = clock_all(SERVER)
    try:
        cli.serve(flags)
    finally:
        Path(result).write_text(json.dumps(low(times)))


def measure(size: int, *, by_memory: bool) -> dict[str, float]:
    shared_memory.FOLDER = shared_memory.FOLDER if by_memory else "/nowhere"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "times"
        flags = ["--host", "127.0.0.1", "--port", "0", "--optimizer", "rmsprop"]
        with serving([sys.executable, "-m", "benchmarks.stages", "serve", str(result), *flags]) as (server, _):
            times = clock_all(WORKER)
            client, parameters = our_parameters(server, size, resend_bytes=0)
            weights = torch.zeros(size)
            parameters.seed(weights)
            newest = parameters.pull()
            push_pull = clocked(parameters.push_pull, times["worker: push_pull"])
            gradient = clocked(gradients(client, size), times["worker: a gradient"])
            place = clocked(weights.copy_, times["worker: weights into place"])
            for _ in range(TRIPS):
                newest = push_pull(gradient(), computed_on=newest, steps=1)
                place(newest.weights)
            client.close()
        return {**low(times), **json.loads(result.read_text())}


def main(size: int) -> None:
    # One process for each transport, because functions stay wrapped.
    columns = [
        json.loads(subprocess.check_output([sys.executable, "-m", "benchmarks.stages", way, str(size)]))
        for way in ("wire", "memory")
    ]
    table = Table(f"{size / 1e6:g} M parameters, µs", "by wire", "by memory")
    for name in dict.fromkeys([*[stage[0] for stage in WORKER + SERVER], *columns[0], *columns[1]]):
        table.add_row(name, *(f"{column[name]:,.0f}" if name in column else "" for column in columns))
    Console(width=110).print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()  # as in both programs
    match sys.argv[1:]:
        case ["serve", result, *flags]:
            serve(result, *flags)
        case ["wire" | "memory" as way, size]:
            print(json.dumps(measure(int(size), by_memory=way == "memory")))
        case sizes:
            main(int(float(sizes[0])) if sizes else 700_000)
