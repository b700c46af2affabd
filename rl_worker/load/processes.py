"""The processes of a load test: started, told what to do, heard, and ended, however the test ends."""

import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import msgspec

from common.errors import PsRlError
from common.program.child_processes import child_environment, die_with_parent, how_it_ended
from rl_worker.load.workload import Joined, Progress, Pushed, Report, Workload

ANSWER_SECONDS = 30.0  # beyond the time that the workers have
LEAVE_SECONDS = 5.0
POLL_SECONDS = 0.2

_REPORT: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)
R = TypeVar("R", Joined, Pushed)


class LoadProcesses:
    """Use it as a context manager: the processes begin with the block, and end with it."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._workloads = workloads
        self._processes: list[subprocess.Popen[str]] = []
        self._progress: dict[int, int] = {}  # workers with weights, by process

    def __enter__(self) -> Self:
        for workload in self._workloads:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from rl_worker.__main__ import load_process; load_process()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                env=child_environment(),
                preexec_fn=die_with_parent,
            )
            self._processes.append(process)
            self._tell(process, msgspec.json.encode(workload).decode())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

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
            self._tell(process, f"push {seconds}")
        return self._reports(Pushed, within_seconds=seconds, every_seconds=every_seconds, look=look)

    def leave(self) -> None:
        """Have all workers send GOODBYE, and the processes end."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(LEAVE_SECONDS)

    def _tell(self, process: "subprocess.Popen[str]", line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

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
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, number)
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
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise PsRlError(f"a process of the load test has failed: {how_it_ended(process.wait(LEAVE_SECONDS))}")
        return _REPORT.decode(line)
