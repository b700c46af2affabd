"""
The workers of this machine, supervised: one that dies, or hangs, is started again; one that has left in order is not.
"""

from collections.abc import Sequence

from ps_common.program.child_processes import Child
from ps_common.program.supervision import Death, SupervisedProcess
from ps_common.protocol.status import Status

HUNG_SECONDS = 1.0  # for a hung child to leave: it may not react to SIGTERM


class SupervisedWorkers:
    """The workers of this machine, by name."""

    def __init__(self, processes: Sequence[SupervisedProcess], *, stall_seconds: float) -> None:
        self.processes = processes
        self._stall_seconds = stall_seconds

    @property
    def children(self) -> list[Child]:
        return [process.child for process in self.processes]

    @property
    def have_left(self) -> bool:
        """Whether every one has left in order."""
        return all(child.has_left for child in self.children)

    def replace_dead(self) -> list[Death]:
        """Replace those that have died, and start those whose pause is over. Raises PsRlError as `replace` does."""
        return [
            process.replace(process.child.cause_of_death())
            for process in self.processes
            if process.start_if_due() and process.child.has_died
        ]

    def start_those_that_left(self) -> None:
        """Those that have left in order are started again."""
        for process in self.processes:
            if process.child.has_left:
                process.begin_again()

    def replace_hung(self, status: Status) -> list[Death]:
        """Note the work of each worker; replace a stalled one, and one that is silent though its process runs."""
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
