"""
The time that the speaker of a gang works for a push: a real gang whose members compute nothing, and no server.

Run it as a module: it prints a list of runs in JSON. Each member pushes a gradient of zeros again and again.
"""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec
import torch
from torch import Tensor

from benchmarks.fleets.service_times import Gathered
from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_common.errors import RunEnded
from ps_common.program.child_processes import LinkedChild
from ps_common.program.fork_server import begin_fork_server
from ps_common.program.reasons import say
from ps_common.program.start import start
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.shared_memory import Segment
from rl_worker.gang_link import Begin, Vectors
from rl_worker.gang_member import OfSpeaker, link_of_input
from rl_worker.gang_speaker import Gang

PROGRAM = "benchmarks.fleets.gathering"
MEMBERS, SIZES = (2, 4, 8), (1_000, 150_000, 1_700_000)
WARM_PUSHES, SECONDS = 20, 1.0


class NoServer:
    """Each push makes a version, and each reply brings weights."""

    def __init__(self, size: int) -> None:
        self.newest = Newest(epoch=1, version=1, global_steps=0, target_version=1, weights=torch.zeros(size))

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return self.newest

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()) -> Newest:
        self.newest = replace(self.newest, version=self.newest.version + 1)
        return self.newest

    def adjusted_algorithm(self) -> None:
        return None


def gathered(members: int, size: int) -> Gathered:
    """One run."""
    rest: dict[str, Any] = {"run": {}, "modules": (), "hooks": (), "name": "member", "worker": 0, "environments": 1}
    rest |= {"threads": 1, "device": "cpu", "seed": 0}
    gang = Gang(
        cast(RemoteParameters, NoServer(size)),
        Schema([TensorSpec("all", (size,))]),
        RunSpec(),
        lambda number, memory, size: Begin(member=number, memory=memory, size=size, **rest),
        members=members,
        stall_seconds=60.0,
        progressed=lambda: None,
        start=partial(LinkedChild, PROGRAM, ["member"]),
    )
    with gang:
        newest, gradient, pushes, spent = gang.pull(), torch.zeros(size), 0, 0.0
        while not all(member.is_in_step for member in gang._members):
            gang.adjusted_algorithm()
        end = time.monotonic() + SECONDS
        while pushes < 2 * WARM_PUSHES or time.monotonic() < end:
            began = time.thread_time()
            newest = gang.push_pull(gradient, computed_on=newest, steps=1)
            pushes += 1
            spent += time.thread_time() - began if pushes > WARM_PUSHES else 0.0
    return Gathered(members=members, parameters=size, seconds=spent / (pushes - WARM_PUSHES))


def be_a_member() -> int:
    link = link_of_input()
    begin: Begin = link.hear()
    parameters = OfSpeaker(link, Vectors(Segment.open(begin.memory), begin.size), begin.member)
    gradient = torch.from_numpy(parameters.gradient_memory(begin.size))
    with suppress(RunEnded):
        newest = parameters.pull()
        while True:
            newest = parameters.push_pull(gradient.zero_(), computed_on=newest, steps=1)
    say("over", "the gang leaves")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["member"]:
        start(PROGRAM, "be_a_member")
    begin_fork_server({PROGRAM: ()})
    torch.set_num_threads(1)
    print(msgspec.json.encode([gathered(members, size) for size in SIZES for members in MEMBERS]).decode())
