"""
The workers of this machine, supervised: one that dies, or hangs, is started again; one that has left in order is not.

`rl-cluster --server` starts such workers for a server elsewhere, each with the same flags and another name. Their
output is printed, and the server is asked now and then which of them work.
"""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child, PipedChild, end_all
from ps_common.program.stop_signals import StopSignal
from ps_common.program.supervision import SupervisedProcess, deaths_of
from ps_common.protocol.status import Status
from ps_common.run_folder.endpoint_file import ServerAddress
from ps_common.sockets.request import SERVED_ELSEWHERE, status_of
from rl_cluster.cores import usable_cores
from rl_cluster.settings import WorkersElsewhere

HUNG_SECONDS = 1.0  # for a hung child to leave: it may not react to SIGTERM
POLL_SECONDS = 0.5  # between two looks at the children
STATUS_SECONDS = 5.0  # between two requests of the status
REPLY_SECONDS = 2.0  # until such a request has failed
LEAVE_SECONDS = 10.0  # for the children to leave when asked to

log = logging.getLogger("rl-cluster")


class SupervisedWorkers:
    """The workers of this machine, by name."""

    def __init__(self, names: Sequence[str], start: Callable[[str], Child], *, stall_seconds: float) -> None:
        """`start` starts the worker of a name."""
        self._stall_seconds = stall_seconds
        self.processes = [
            SupervisedProcess(name, partial(start, name), may_leave=True, counts_work=True) for name in names
        ]

    @property
    def children(self) -> list[Child]:
        return [process.child for process in self.processes]

    @property
    def have_left(self) -> bool:
        """Whether every one has left in order."""
        return all(child.has_left for child in self.children)

    def start_those_that_left(self) -> None:
        """Those that have left in order are started again."""
        for process in self.processes:
            if process.child.has_left:
                process.begin_again()

    def replace_dead(self, status: Status | None) -> list[str]:
        """
        Replace workers that have died; by a status also those that are stalled, or silent though their process runs.

        Raises PsRlError when one dies again and again.
        """
        hung = [] if status is None else self._replace_hung(status)
        return hung + deaths_of(self.processes)

    def _replace_hung(self, status: Status) -> list[str]:
        workers = {worker.worker_id: worker for worker in status.workers}
        deaths = []
        for process in self.processes:
            worker, child = workers.get(process.name), process.child
            # A status from before this child was started is that of its predecessor.
            if worker is None or worker.silent_seconds >= child.age_seconds or child.exit_status is not None:
                continue
            process.note_work(worker.pushes)
            if worker.stalled:
                hangs = child.reason is not None and child.reason.how == "hangs"
                why = child.reason.text if child.reason is not None and hangs else "it is stalled"
            elif not worker.alive and worker.silent_seconds > self._stall_seconds and not child.is_paused:
                why = f"silent for {worker.silent_seconds:.0f} s, though its process runs"
            else:
                continue
            child.end(within_seconds=HUNG_SECONDS)
            deaths.append(process.replace(f"it hangs: {why}"))
        return deaths


def counted(processes: int | Literal["auto"], *, is_gang: bool) -> tuple[int, list[str]]:
    """The number of workers for a number of processes, and the flags of each for that."""
    count = usable_cores() if processes == "auto" else processes
    return (1, ["--gang", str(count)]) if is_gang else (count, [])


def work_elsewhere(settings: WorkersElsewhere, name: str, flags: Sequence[str], stop: StopSignal) -> int:
    """
    Supervise workers until all have left by themselves or a signal comes. `flags` are those of rl-worker.

    Returns the exit status. Raises PsRlError when a worker dies again and again.
    """
    count, of_gang = counted(settings.workers, is_gang=settings.gang)
    flags = [*settings.of_each_worker, *of_gang, *flags]
    if status := _checked(flags, stop):
        return status
    if stop.is_set():
        return 0
    others = f" to {name}-{count - 1}" if count > 1 else ""
    log.info("starting %s: %s-0%s", f"a gang of {of_gang[-1]}" if of_gang else f"{count} workers", name, others)
    workers = SupervisedWorkers(
        [f"{name}-{number}" for number in range(count)],
        lambda one: PipedChild("rl_worker", [*flags, "--name", one], partial(_print_line, one)),
        stall_seconds=settings.stall_seconds,
    )
    try:
        _supervise(workers, settings, stop)
    finally:
        end_all(workers.children, within_seconds=LEAVE_SECONDS)
    log.info("all workers have left")
    return 0


def _checked(flags: Sequence[str], stop: StopSignal) -> int:
    """The exit status of a worker that checks these flags and ends: all workers would say the same."""
    child = PipedChild("rl_worker", [*flags, "--check"], partial(_print_line, ""))
    try:
        while child.exit_status is None and not stop.is_set():
            child.wait(within_seconds=POLL_SECONDS)
    finally:
        end_all([child], within_seconds=LEAVE_SECONDS)
    return 0 if stop.is_set() else child.exit_status or 0


def _supervise(workers: SupervisedWorkers, settings: WorkersElsewhere, stop: StopSignal) -> None:
    asked = time.monotonic()
    while not stop.is_set() and not workers.have_left:
        time.sleep(POLL_SECONDS)
        is_due = time.monotonic() - asked > STATUS_SECONDS
        status = _status(settings) if is_due else None
        asked = time.monotonic() if is_due else asked
        for death in workers.replace_dead(status):
            log.warning("%s", death)


def _status(settings: WorkersElsewhere) -> Status | None:
    """The status of the run; None when no server that serves it replies, which the workers say, too."""
    address = ",".join(ServerAddress(settings.server).known)
    try:
        status = status_of(address, timeout_seconds=REPLY_SECONDS, keys=settings.client_keys()).status
    except PsRlError:
        return None
    return None if status.phase in SERVED_ELSEWHERE else status


def _print_line(name: str, line: str) -> None:
    """Log lines of a worker contain its name; its other output gets it."""
    sys.stderr.write((f"{name} | {line}" if name and f" {name}: " not in line else line) + "\n")
    sys.stderr.flush()
