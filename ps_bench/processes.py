"""
The processes of a load test: told what to do, heard, and ended, however the test ends.

Each is given a Workload, and reports in JSON on the same connection, which is its standard input. When all its workers
have joined, it waits for a Push, and for the end of the connection to leave.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Self

import msgspec
from msgspec import field

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child
from ps_common.protocol.messages import Run
from ps_common.protocol.tensors import TensorSpec
from ps_common.sockets.curve import ClientKeys

ANSWER_SECONDS = 30.0  # beyond the time that the workers have
LEAVE_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two calls of `meanwhile`, while no process reports


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of one process, and what each of them does."""

    server: str
    names: tuple[str, ...]
    schema: tuple[TensorSpec, ...]
    proposed_run: Run
    gradient_codec: str
    weight_codec: str
    compute_seconds: float  # mean between a reply and the next push
    steps: int  # of each push
    join_seconds: float  # until a worker that has no weights yet is counted as one that could not join
    keys: ClientKeys | None = None


class Push(msgspec.Struct, frozen=True):
    """All workers push for so long."""

    seconds: float


class Counts(msgspec.Struct):
    """What the workers of a process have seen. The dictionaries that they count in are Counters."""

    join_seconds: dict[int, int] = field(default_factory=Counter)  # histogram: from connecting to WELCOME
    ready_seconds: dict[int, int] = field(default_factory=Counter)  # histogram: from connecting to the first weights
    round_trip_seconds: dict[int, int] = field(default_factory=Counter)  # histogram: from a push to its settlement
    staleness: dict[int, int] = field(default_factory=Counter)  # pushes by versions
    discarded: int = 0  # pushes
    refused: dict[str, int] = field(default_factory=Counter)  # replies by code
    reasons: dict[str, str] = field(default_factory=dict)  # a sentence for each code; under "" the error of a worker


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has done: its workers have joined, or their time to do so is over; or they have pushed."""

    began: float  # time.time()
    seconds: float  # that it took
    counts: Counts
    settled: tuple[int, ...]  # pushes that were applied, by worker
    lost: int  # workers whose conversation with the server is over


REPORT = msgspec.json.Decoder(Report)


class _Process(Child):
    def __init__(self, workload: Workload) -> None:
        self.log = None
        self.connection, theirs = Pipe()
        with theirs:
            null = subprocess.DEVNULL
            self._start("ps_bench.process", [], stdin=theirs.fileno(), stdout=null, stderr=None)
        self.tell(workload)

    def tell(self, message: Workload | Push) -> None:
        try:
            self.connection.send_bytes(msgspec.json.encode(message))
        except OSError as error:
            raise self._failure() from error

    def read(self) -> Report:
        try:
            return REPORT.decode(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._failure() from error

    def _failure(self) -> PsRlError:
        """The error of a process whose connection has ended, with the cause."""
        self.end(within_seconds=LEAVE_SECONDS)
        return PsRlError(f"a process of the load test has failed: {self.cause_of_death()}")


class LoadProcesses:
    """Use it as a context manager: the processes begin with the block, and end with it."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._workloads = workloads
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        for workload in self._workloads:
            self._processes.append(_Process(workload))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end(within_seconds=0)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes]

    def join(self, meanwhile: Callable[[], None] = lambda: None) -> list[Report]:
        """Wait until all workers have weights, or their time to join is over; `meanwhile` is called each second."""
        return self._reports(max(workload.join_seconds for workload in self._workloads), meanwhile)

    def push(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> list[Report]:
        """Have all workers push for so long; `meanwhile` is called each second."""
        for process in self._processes:
            process.tell(Push(seconds))
        return self._reports(seconds, meanwhile)

    def leave(self) -> None:
        """Have all workers send GOODBYE, and the processes end."""
        for process in self._processes:
            process.connection.close()
        for process in self._processes:
            process.wait(within_seconds=LEAVE_SECONDS)

    def _reports(self, within_seconds: float, meanwhile: Callable[[], None]) -> list[Report]:
        """One report from each process. Raises PsRlError when a process fails or is silent."""
        found: list[Report] = []
        waiting: dict[object, _Process] = {process.connection: process for process in self._processes}
        end = time.monotonic() + within_seconds + ANSWER_SECONDS
        while waiting:
            if time.monotonic() > end:
                raise PsRlError(f"a process of the load test has reported nothing for {within_seconds:.0f} s")
            if not (readable := wait([process.connection for process in waiting.values()], LOOK_SECONDS)):
                meanwhile()
            found += [waiting.pop(connection).read() for connection in readable]
        return found
