"""
A gang whose processes count, each in a statistic of its own: members and speaker of rl_worker, without a game.

Run it as a module: gang HOST:PORT FIRST COUNT WEIGHTS COUNTERS STOP, as swarm.py. Process k of COUNT adds 1 to
statistic FIRST + k with each push of the gang, and −1 is its gradient of the one weight. The mean of any number of
gradients of −1 is −1, and the optimizer subtracts it: the weight is the number of pushes that were applied.
"""

import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.trials.swarm import done_beside
from ps_client.shell.newest import Newest
from ps_common.errors import RunEnded
from ps_common.program.child_processes import LinkedChild
from ps_common.program.fork_server import begin_fork_server
from ps_common.program.reasons import report_reason
from ps_common.program.start import start
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.shared_memory import Segment
from rl_worker.gang_link import Begin, Vectors
from rl_worker.gang_member import OfSpeaker, link_of_input
from rl_worker.gang_speaker import Gang
from tests.integration.integer_worker import joined

PROGRAM = "benchmarks.trials.gang"
MEMBER = "member"  # first argument of one


def schema_of(processes: int) -> Schema:
    return Schema([TensorSpec("pushes", (1,)), TensorSpec("counts", (processes,), role="statistic")])


class Counting:
    """The contributions of one process of a gang."""

    def __init__(self, first: int, number: int, weights: int, counters: Path) -> None:
        shape = (counters.stat().st_size // 16, 2)
        self._counter = np.memmap(counters, dtype=np.int64, mode="r+", shape=shape)[number]
        self._one = torch.zeros(1 + weights)
        self._one[0], self._one[1 + first + number] = -1.0, 1.0

    def push(self, parameters: Gang | OfSpeaker, newest: Newest) -> Newest:
        self._counter[0] += 1
        newest = parameters.push_pull(self._one.clone(), computed_on=newest, steps=1)
        self._counter[1] += 1
        return newest


def speak(server: str, first: int, count: int, weights: int, counters: Path, stop: Path) -> None:
    """Until STOP exists. The connection stays open: a server that is killed then needs what is in the resend buffer."""
    np.zeros((count, 2), dtype=np.int64).tofile(counters)
    torch.set_num_threads(1)
    schema = schema_of(weights)
    parameters, *_ = joined(server, f"gang-{first}", schema)
    child = partial(LinkedChild, PROGRAM, [MEMBER, str(first), str(weights), str(counters)])
    counting = Counting(first, 0, weights, counters)
    gang = Gang(
        parameters,
        schema,
        RunSpec(),
        partial(_begin, first),
        members=count,
        check=lambda: None,
        start=child,
    )
    with gang:
        newest = gang.pull()
        while not stop.exists():
            newest = counting.push(gang, newest)
            assert newest.settled is not None
            assert newest.settled.verdict in ("applied", "duplicate"), newest.settled
        gang.finish()
    done_beside(counters).touch()
    threading.Event().wait()


def _begin(first: int, member: int, memory: str, size: int) -> Begin:
    """What a member is told; it has no run."""
    nothing: Any = {
        "run": {}, "modules": (), "hooks": (), "environments": 1, "threads": 1, "device": "cpu", "seed": 0,
        "is_seeded": False,
    }  # fmt: skip
    return Begin(name=f"gang-{first}+{member}", worker=first, member=member, memory=memory, size=size, **nothing)


def be_a_member() -> int:
    first, weights, counters = sys.argv[2:]
    link = link_of_input()
    begin: Begin = link.receive()
    parameters = OfSpeaker(link, Vectors(Segment.open(begin.memory), begin.size), begin.member)
    counting = Counting(int(first), begin.member, int(weights), Path(counters))
    with suppress(RunEnded):
        newest = parameters.pull()
        while True:
            newest = counting.push(parameters, newest)
    report_reason("over", "the gang leaves")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == MEMBER:
        start(PROGRAM, "be_a_member")
    begin_fork_server({PROGRAM: ()})
    server, first, count, weights, counters, stop = sys.argv[1:]
    speak(server, int(first), int(count), int(weights), Path(counters), Path(stop))
