"""
`rl-worker --workers N`: N workers of this machine as child processes, supervised until the run ends or a signal comes.

Each child is the same program with the same flags and a name of its own. The parent prints their output, and asks the
server now and then which of them work. It neither plays nor computes.
"""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from ps_common.program.child_processes import PipedChild, end_all
from ps_common.program.cores import usable_cores
from ps_common.program.stop_signals import StopSignal
from ps_common.program.supervision import SupervisedProcess
from ps_common.protocol.messages import StatusReply
from ps_common.protocol.names import as_name
from ps_common.run_folder.server_status import status_asker
from rl_cluster.supervision import SupervisedWorkers
from rl_worker.settings import WorkerSettings

PARENTS_FLAGS = {"--workers", "--name"}  # not for the children
POLL_SECONDS = 0.5  # between two looks at the children
STATUS_SECONDS = 5.0  # between two requests of the status
LEAVE_SECONDS = 10.0  # for the children to leave when asked to

log = logging.getLogger("rl-worker")


def work_on_many(settings: WorkerSettings, name: str, arguments: Sequence[str], stop: StopSignal) -> None:
    """
    Supervise workers until all have left by themselves or a signal comes. `arguments` are those of this program.

    Raises PsRlError when a worker dies again and again.
    """
    count = settings.workers if isinstance(settings.workers, int) else usable_cores()
    if stop.is_set():
        return
    log.info("starting %d workers: %s-0 to %s-%d", count, name, name, count - 1)
    flags = without(arguments, PARENTS_FLAGS)
    workers = SupervisedWorkers(
        [SupervisedProcess(one, partial(_start, one, flags)) for one in (as_name(f"{name}-{k}") for k in range(count))],
        stall_seconds=settings.stall_seconds,
    )
    try:
        _supervise(workers, status_asker(settings), stop)
    finally:
        end_all(workers.children, within_seconds=LEAVE_SECONDS)
    log.info("all workers have left")


def _supervise(workers: SupervisedWorkers, ask_status: Callable[[], StatusReply | None], stop: StopSignal) -> None:
    asked = time.monotonic()
    while not stop.is_set() and not workers.have_left:
        time.sleep(POLL_SECONDS)
        deaths = workers.replace_dead()
        if time.monotonic() - asked > STATUS_SECONDS:
            reply = ask_status()
            asked = time.monotonic()
            deaths += workers.replace_hung(reply.status) if reply is not None else []
        for death in deaths:
            log.warning("%s", death)


def _start(name: str, flags: Sequence[str]) -> PipedChild:
    return PipedChild("rl_worker", [*flags, "--name", name], partial(_print_line, name))


def _print_line(name: str, line: str) -> None:
    """Log lines of a worker contain its name; its other output gets it."""
    sys.stderr.write((line if f" {name}: " in line else f"{name} | {line}") + "\n")
    sys.stderr.flush()


def without(arguments: Sequence[str], flags: set[str]) -> list[str]:
    """The arguments without these flags and the value of each."""
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        flag, has_value = argument.partition("=")[0].replace("_", "-"), "=" in argument
        if not is_value and flag not in flags:
            kept.append(argument)
        is_value = not is_value and flag in flags and not has_value
    return kept
