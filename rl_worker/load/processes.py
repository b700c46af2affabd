"""The processes of a load test: started, told what to do, heard, and ended, however the test ends."""

import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import msgspec

from common.errors import PsRlError
from common.program.child_processes import Child
from rl_worker.load.workload import Joined, Progress, Pushed, Report, Workload

ANSWER_SECONDS = 30.0  # beyond the time that the workers have
LEAVE_SECONDS = 5.0
POLL_SECONDS = 0.2

_REPORT: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)
R = TypeVar("R", Joined, Pushed)


class _Process(Child):
    """Reads lines from its input, and writes reports to its output."""

    def __init__(self) -> None:
        self.log = None
        self._start("rl_worker.__main__:load_process", [], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.input, self.output = self._process.stdin, self._process.stdout

    def tell(self, line: bytes) -> None:
        self.input.write(line + b"\n")
        self.input.flush()


class LoadProcesses:
    """Use it as a context manager: the processes begin with the block, and end with it."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._workloads = workloads
        self._processes: list[_Process] = []
        self._progress: dict[int, int] = {}  # workers with weights, by process

    def __enter__(self) -> Self:
        for workload in self._workloads:
            process = _Process()
            self._processes.append(process)
            process.tell(msgspec.json.encode(workload))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end(within_seconds=0)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes]

    def join(self, on_progress: Callable[[int], None]) -> list[Joined]:
        """Wait until all workers have weights, or their time to join is over."""
        seconds = max(workload.join_seconds for workload in self._workloads)
        return self._reports(Joined, within_seconds=seconds, on_progress=on_progress)

    def push(self, seconds: float, *, every_seconds: float, look: Callable[[], None]) -> list[Pushed]:
        """Have all workers push for so long; `look` is called every so often meanwhile."""
        for process in self._processes:
            process.tell(f"push {seconds}".encode())
        return self._reports(Pushed, within_seconds=seconds, every_seconds=every_seconds, look=look)

    def leave(self) -> None:
        """Have all workers send GOODBYE, and the processes end."""
        for process in self._processes:
            process.input.close()
        for process in self._processes:
            process.wait(within_seconds=LEAVE_SECONDS)

    def _reports(
        self,
        kind: type[R],
        *,
        within_seconds: float,
        on_progress: Callable[[int], None] = lambda _: None,
        every_seconds: float = float("inf"),
        look: Callable[[], None] = lambda: None,
    ) -> list[R]:
        """One report of this kind from each process. Raises PsRlError when a process fails or is silent."""
        found: list[R] = []
        end = time.monotonic() + within_seconds + ANSWER_SECONDS
        look_at = time.monotonic() + every_seconds
        with selectors.DefaultSelector() as selector:
            for number, process in enumerate(self._processes):
                selector.register(process.output, selectors.EVENT_READ, number)
            while len(found) < len(self._processes):
                if (now := time.monotonic()) > end:
                    raise PsRlError(f"a process of the load test has reported nothing for {within_seconds:.0f} s")
                if now >= look_at:
                    look()
                    look_at = time.monotonic() + every_seconds
                for key, _ in selector.select(POLL_SECONDS):
                    report = self._read(key.data)
                    if isinstance(report, Progress):
                        self._progress[key.data] = report.ready
                        on_progress(sum(self._progress.values()))
                    elif isinstance(report, kind):
                        found.append(report)
                        selector.unregister(key.fileobj)
        return found

    def _read(self, number: int) -> Report:
        process = self._processes[number]
        line = process.output.readline()
        if not line:
            process.end(within_seconds=LEAVE_SECONDS)
            raise PsRlError(f"a process of the load test has failed: {process.cause_of_death()}")
        return _REPORT.decode(line)
