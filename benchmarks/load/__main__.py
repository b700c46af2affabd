"""
`make load`: a thousand synthetic workers join one server and push zeros, and their limits hold.

Prints joins and pushes a second, round trips, fairness and the server's memory. Exits with a status other than 0 when
workers were refused, lost or did not join; and, with a server that it has started itself, when they joined too slowly,
were served unequally, or made the server's memory grow beyond the formula of docs/GUARANTEES.md.
"""

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from benchmarks.load.synthetic_worker import Counts
from benchmarks.load.workers import RUN, SyntheticWorkers
from benchmarks.trials.frame import programs_of_a_trial, report
from ps_common.errors import PsRlError, SettingsError
from ps_common.program.flags import parse_program
from ps_common.program.number_flags import MOST_SECONDS, check_numbers
from ps_common.protocol.codecs import CODECS, Packed
from ps_common.protocol.names import LONGEST_PREFIX, as_name
from ps_common.protocol.tensors import ELEMENT_BYTES, MAX_ELEMENTS, Schema, TensorSpec
from ps_common.settings.run_spec import GradientCodec
from ps_common.sockets.curve import CurveFlags
from ps_common.sockets.request import status_of

JOIN_SECONDS = 60.0
MEASURE_SECONDS = 1.5  # until the server has measured its memory once more
REPLY_SECONDS = 30.0  # a server under load replies in turn
LEAST_FAIRNESS, MOST_JOIN_SECONDS = 0.95, 15.0  # with a server on this machine
# Bytes of the formula in docs/GUARANTEES.md, by which the memory of a server may grow because of its workers. For each
# it keeps its account and its member, and ZeroMQ two queues of its connection. A synthetic worker has one push in
# flight: its gradient may be on the way in, and weights on the way out.
FIRST_BYTES = 16 * 2**20  # of the first push, whoever sends it: code that has not run before, and its buffers
WORKER_BYTES = 100 * 1024  # measured: 34 to 75 KiB, with 100 to 1,000 workers


@dataclass(frozen=True, kw_only=True)
class Flags(CurveFlags):
    """Put the load of many synthetic workers on a server."""

    server: str | None = None
    """HOST:PORT of a ps-server without a run, or with that of an earlier load test; one of its own when not given"""
    workers: Annotated[int, Meta(ge=1, le=50_000)] = 1000
    """synthetic workers"""
    seconds: Annotated[float, Meta(ge=0.1, le=MOST_SECONDS)] = 30.0
    """how long the workers push, once all have joined"""
    compute_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = 0.0
    """time between a reply and a worker's next push, in place of games and network (80 to 120 percent of it, drawn each
    time); 0: as fast as the server replies"""
    parameters: Annotated[int, Meta(ge=1, le=MAX_ELEMENTS)] = 150_000
    """elements of the weights; 150,000 is the network of pong-a3c"""
    gradient_codec: GradientCodec = "float32"
    """codec of gradients"""
    weight_codec: Literal["float32", "bfloat16", "float16"] = "float32"
    """codec of weights"""

    def __post_init__(self) -> None:
        check_numbers(self)


def trial(flags: Flags) -> tuple[dict[str, float], dict[str, bool]]:
    """The figures by name, and the guarantees by whether they are broken."""
    with ExitStack() as stack:
        if is_own := flags.server is None:
            _, endpoint = stack.enter_context(programs_of_a_trial()).start_server("--lease-seconds", "60")
            flags = replace(flags, server=endpoint)
        return _loaded(flags, is_own=is_own)


def _loaded(flags: Flags, *, is_own: bool) -> tuple[dict[str, float], dict[str, bool]]:
    """Let the workers join, push and leave."""
    assert flags.server
    keys, schema = flags.client_keys(), Schema([TensorSpec("all", (flags.parameters,))])
    found = status_of(flags.server, timeout_seconds=REPLY_SECONDS, keys=keys)
    if found.run and found.status.preset != RUN.preset:
        raise SettingsError(f"--server {flags.server}: trains {found.status.preset}; start one without a run")
    prefix = as_name(f"load-{os.getpid()}-{socket.gethostname()}"[:LONGEST_PREFIX])
    names = [f"{prefix}-{number}" for number in range(flags.workers)]
    workers_named = partial(
        SyntheticWorkers,
        flags.server,
        schema=schema,
        gradient_codec=flags.gradient_codec,
        weight_codec=flags.weight_codec,
        compute_seconds=flags.compute_seconds,
        keys=keys,
    )
    if not found.schema:  # each of the first workers would bring weights
        with workers_named(names[:1]) as first:
            first.join(within_seconds=JOIN_SECONDS)
            first.leave()
        time.sleep(MEASURE_SECONDS)
    before = status_of(flags.server, timeout_seconds=REPLY_SECONDS, keys=keys).status.memory_bytes
    with workers_named(names) as workers:
        workers.join(within_seconds=JOIN_SECONDS)
        pushes, lost = workers.push(flags.seconds), workers.lost()
        growth = status_of(flags.server, timeout_seconds=REPLY_SECONDS, keys=keys).status.memory_bytes - before
        workers.leave()
    size = sum(_vector_bytes(schema, codec) for codec in (flags.gradient_codec, flags.weight_codec))
    most_growth = FIRST_BYTES + flags.workers * (WORKER_BYTES + size)
    figures = _figures(workers.counts, pushes, flags.seconds, size)
    figures |= {"growth_mib": growth / 2**20, "of_mib": most_growth / 2**20}
    joined, refused = len(workers.counts.ready_seconds), dict(workers.counts.refused)
    broken = {
        f"every worker joins: {joined} of {flags.workers} did; {lost}": joined < flags.workers,
        f"no worker loses the server: {lost}": bool(lost),
        f"nothing is refused: {refused}": bool(refused),
    }
    return figures, broken | (_broken_here(figures) if is_own else {})


def _broken_here(figures: Mapping[str, float]) -> dict[str, bool]:
    """The bounds of a server on this machine."""
    return {
        f"the last worker has weights within {MOST_JOIN_SECONDS:g} s": (
            figures["ready_seconds_longest"] > MOST_JOIN_SECONDS
        ),
        f"fairness is at least {LEAST_FAIRNESS}": figures["fairness"] < LEAST_FAIRNESS,
        "memory grows by no more than the formula": figures["growth_mib"] > figures["of_mib"],
    }


def _figures(counts: Counts, pushes: Sequence[int], seconds: float, vector_bytes: int) -> dict[str, float]:
    """What the workers have seen. `vector_bytes`: of a gradient and weights, on the wire."""
    a_second = sum(pushes) / seconds
    return {
        "workers": len(counts.ready_seconds),
        **_times("join_seconds", counts.join_seconds),
        **_times("ready_seconds", counts.ready_seconds),
        "pushes": sum(pushes),
        "pushes_per_second": a_second,
        "vector_mb_per_second": a_second * vector_bytes / 1e6,
        **_times("round_trip_seconds", counts.round_trip_seconds),
        "staleness": float(np.mean(counts.staleness or [0])),
        "fairness": jains_index(pushes),
    }


def jains_index(shares: Sequence[int]) -> float:
    """How equal the shares are: 1 if they are equal, 1/n if one of n has everything (Jain, Chiu and Hawe 1984)."""
    counted = np.array(shares, np.float64)
    return float(counted.sum() ** 2 / (len(counted) * counted @ counted)) if counted.any() else 1.0


def _times(name: str, seconds: Sequence[float]) -> dict[str, float]:
    p50, p99, longest = np.percentile(seconds or [0.0], (50, 99, 100))
    return {f"{name}_p50": float(p50), f"{name}_p99": float(p99), f"{name}_longest": float(longest)}


def _vector_bytes(schema: Schema, codec_name: str) -> int:
    """Bytes of a vector on the wire."""
    codec = CODECS[codec_name]
    return codec.length(schema.size) if isinstance(codec, Packed) else ELEMENT_BYTES * schema.size


if __name__ == "__main__":
    try:
        sys.exit(report(*trial(parse_program(Flags, None, prog="python -m benchmarks.load"))))
    except PsRlError as error:
        sys.exit(str(error))
