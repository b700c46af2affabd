"""`ps-bench`: put load on a server, as many workers would, and report how it bears that."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from tyro.conf import arg
from tyro.extras import SubcommandApp

from ps_bench.processes import LoadProcesses, Workload
from ps_bench.results import LoadResult, as_text, joining_of, memory_of, pushing_of, refusals_of
from ps_bench.settings import LoadSettings, Target, target_of
from ps_common.errors import PsRlError, ServerUnreachable, SettingsError
from ps_common.program.flags import print_version
from ps_common.program.number_flags import NUMBERS
from ps_common.protocol.messages import StatusReply
from ps_common.protocol.names import is_loopback, split_address
from ps_common.protocol.status import Status
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.sockets.request import status_of
from ps_common.sockets.zmq_sockets import most_descriptors

PROGRAM = "ps-bench"
REPLY_SECONDS = 30.0  # a server under load replies in turn
WORKERS_A_PROCESS = 250  # with `auto`, where cores allow
DESCRIPTORS_A_WORKER = 2  # its connection, and the one by which ZeroMQ wakes its thread
SPARE_DESCRIPTORS = 64  # of a process, besides
LEAVE_SECONDS = 1.5  # until the server has measured its memory once more

app = SubcommandApp()
Flags = Annotated[LoadSettings, arg(name="")]  # its flags have no prefix


def bench(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can fix."""
    print_version(sys.argv[1:] if argv is None else argv, PROGRAM)
    status: int = app.cli(args=argv, prog=PROGRAM, description=__doc__, registry=NUMBERS)
    return status


@app.command
def load(settings: Flags) -> int:
    """
    Have synthetic workers join a server and push gradients of zeros, then print joins and pushes a second, round trips,
    fairness and the server's memory.

    Take a server for it: ps-server --port 5555. It then holds a run called ps-bench, which trains nothing. On a server
    whose run is somebody's training, --yes-disturb-this-run is required. The exit status is 1 when workers were refused
    or did not join.
    """
    processes = process_count(settings)
    found = _status_of(settings)
    target = target_of(settings.server, found, parameters=settings.parameters, disturb=settings.disturb)
    if not target.is_own:
        _say(f"the run there is somebody's training: {settings.workers} workers will disturb it")
    result = _test(settings, target, found, processes)
    print(msgspec.json.encode(result).decode() if settings.json else as_text(result), flush=True)
    if result.failure:
        _say(result.failure)
    return 1 if result.failure else 0


def _test(settings: LoadSettings, target: Target, found: StatusReply, processes: int) -> LoadResult:
    """Let the workers join, push and leave."""
    workloads, wire = _workloads(settings, target, processes), settings.wire(target.run.wire)
    if not found.schema:
        found = _seeded(settings, workloads[0])
    seen: list[Status] = []

    def look() -> None:
        with contextlib.suppress(ServerUnreachable):  # it is busy, which is what is measured
            seen.append(_status_of(settings).status)

    def say_who_joined() -> None:
        look()
        _say(f"{seen[-1].workers_alive if seen else 0} of {settings.workers} workers have joined")

    with LoadProcesses(workloads) as running:
        joins = running.join(say_who_joined)
        joined = _status_of(settings).status
        seen.clear()
        _say(f"pushing for {settings.seconds:g} s")
        pushes = running.push(settings.seconds, look)
        running.leave()
    time.sleep(LEAVE_SECONDS)
    after = _status_of(settings).status
    size = sum(_vector_bytes(target, codec) for codec in (wire.gradient_codec, wire.weight_codec))
    fields = {
        "server": settings.server,
        "run_id": after.run_id,
        "workers": settings.workers,
        "processes": processes,
        "parameters": target.schema.size,
        "gradient_codec": wire.gradient_codec,
        "weight_codec": wire.weight_codec,
        "compute_seconds": settings.compute_seconds,
        "memory": memory_of(found.status, joined, seen, after, workers=settings.workers, vector_bytes=size),
        **joining_of(joins),
        **pushing_of(pushes, vector_bytes=size),
        **refusals_of([*joins, *pushes]),
    }
    return msgspec.convert(fields, LoadResult, from_attributes=True)


def _seeded(settings: LoadSettings, workload: Workload) -> StatusReply:
    """The status once a worker has given the run its weights: or each of the first would bring some."""
    _say(f"the server has no weights: a worker brings {settings.parameters:,} zeros")
    first = msgspec.structs.replace(workload, names=workload.names[:1])
    with LoadProcesses([first]) as running:
        joined = running.join()[0]
        running.leave()
    if not joined.counts.ready_seconds:
        raise PsRlError(f"the first worker could not join: {'; '.join(joined.counts.reasons.values()) or 'no reply'}")
    return _status_of(settings)


def process_count(settings: LoadSettings) -> int:
    """How many processes the workers are in. Raises SettingsError where they need more descriptors than are allowed."""
    if settings.processes == "auto":
        # The server needs a core where it shares this machine.
        cores = (os.cpu_count() or 1) - is_loopback(split_address(settings.server)[0])
        most = (most_descriptors() - SPARE_DESCRIPTORS) // DESCRIPTORS_A_WORKER
        by_limit = math.ceil(settings.workers / max(1, most))
        count = max(1, by_limit, min(cores, math.ceil(settings.workers / WORKERS_A_PROCESS)))
    else:
        count = settings.processes
    needed = DESCRIPTORS_A_WORKER * math.ceil(settings.workers / count) + SPARE_DESCRIPTORS
    if needed > most_descriptors():
        raise SettingsError(
            f"--workers {settings.workers} --processes {count}: each process needs {needed} descriptors, and may have "
            f"{most_descriptors()}: raise the limit (ulimit -Hn {needed}, as root), or take more --processes"
        )
    return count


def _status_of(settings: LoadSettings) -> StatusReply:
    return status_of(settings.server, timeout_seconds=REPLY_SECONDS, keys=settings.client_keys())


def _workloads(settings: LoadSettings, target: Target, processes: int) -> list[Workload]:
    """The task of each process: the workers are dealt out evenly."""
    wire = settings.wire(target.run.wire)
    names = [f"{settings.prefix}-{number}" for number in range(settings.workers)]
    return [
        Workload(
            server=settings.server,
            names=tuple(names[number::processes]),
            schema=target.schema.specs,
            proposed_run=target.proposed,
            gradient_codec=wire.gradient_codec,
            weight_codec=wire.weight_codec,
            compute_seconds=settings.compute_seconds,
            steps=target.steps,
            join_seconds=settings.join_seconds,
            keys=settings.client_keys(),
        )
        for number in range(processes)
    ]


def _vector_bytes(target: Target, codec_name: str) -> int:
    """Bytes of a vector on the wire."""
    from ps_common.protocol.codecs import CODECS, Packed  # torch, which the errors above need not wait for

    codec, weights = CODECS[codec_name], target.schema.weights
    of_weights = codec.length(weights) if isinstance(codec, Packed) else ELEMENT_BYTES * weights
    return of_weights + ELEMENT_BYTES * target.schema.statistics


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
