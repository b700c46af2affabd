"""
A server and its workers as child processes on this machine, supervised until the run ends.

A child that dies is started again, the server from its newest checkpoint. A child that dies several times without
progress ends the run: its fault will not go away. Each death is reported once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.errors import PsRlError, RequestRefused, ServerUnreachable
from common.program.child_processes import Child
from common.protocol import messages
from common.protocol.addresses import EVERY_INTERFACE, bare_host
from common.protocol.status import Status
from common.run_folder.paths import ENDPOINT, GIFS, SERVER_LOG, worker_log
from common.sockets.request import ask

POLL_SECONDS = 0.5  # between two status requests
REPLY_SECONDS = 2.0  # until a request has failed
START_SECONDS = 300.0  # for the server to come up; on a machine with fifty busy processes it has taken over 60
LEAVE_SECONDS = 10.0  # for the children to leave when the run has ended
HUNG_SECONDS = 1.0  # for a hung child to leave: it may not react to SIGTERM
MOST_DEATHS = 3  # in a row, of one child, without progress between them
PROGRESS_SECONDS = 60.0  # of work: a child that has worked for so long has made progress


@dataclass(frozen=True)
class Death:
    """A child has died and was replaced."""

    name: str  # "the server" or the name of a worker
    why: str  # the last line of its traceback, or the signal that killed it
    log: Path
    in_a_row: int  # deaths of this process without progress, this one included

    def __str__(self) -> str:
        return f"{self.name} died: {self.why} (its log: {self.log}); it is started again"


class SupervisedProcess:
    """One of the run's processes: its present child, and the deaths of those before."""

    def __init__(self, name: str, start: Callable[[], Child]) -> None:
        self.name = name
        self.start = start  # makes the next child; may be changed
        self.child = start()
        self._done = 0  # units of work, by the present child
        self._worked_from = self._worked_until = 0.0  # its ages when `_done` first and last rose
        self._deaths = 0  # in a row

    def note_work(self, done: int) -> None:
        """The child has done so many units of work by now."""
        if done <= self._done:
            return
        self._worked_until = self.child.age_seconds
        if self._done == 0:
            self._worked_from = self._worked_until
        self._done = done

    def replace(self, why: str) -> Death:
        """Start the next child. Raises PsRlError when the last few made no progress."""
        worked = self._worked_until - self._worked_from >= PROGRESS_SECONDS
        self._deaths = 1 if worked else self._deaths + 1
        death = Death(self.name, why, self.child.log, self._deaths)
        if self._deaths >= MOST_DEATHS:
            raise PsRlError(
                f"{death.name} died {self._deaths} times in a row, each within {PROGRESS_SECONDS:.0f} s of work: "
                f"{death.why} (its log: {death.log})"
            )
        self.begin_again()
        return death

    def begin_again(self) -> None:
        """Start the next child."""
        self.child = self.start()
        self._done, self._worked_from, self._worked_until = 0, 0.0, 0.0


class LocalCluster:
    """The processes of one run."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        server_flags: Sequence[str],
        worker_flags: Sequence[str],
        stall_seconds: float,
        host: str,
        port: int,
    ) -> None:
        """Start all processes; `folder` is the run folder. Raises PsRlError when the server fails to start."""
        self._folder = folder
        self._host = host
        self._stall_seconds = stall_seconds
        self._worker_flags = ["--stall-seconds", str(stall_seconds), "--gif-dir", str(folder / GIFS), *worker_flags]
        self._deaths: list[Death] = []
        self._was_drained = False
        self._workers: list[SupervisedProcess] = []
        written_before = last_written(folder / ENDPOINT)  # by a server that was killed, or that has the folder locked
        self._server = SupervisedProcess("the server", partial(self._start_server, *server_flags, "--port", str(port)))
        try:
            self.endpoint = endpoint_of(self._server.child, folder / ENDPOINT, written_before=written_before)
            if self.endpoint is None:
                return
            again = ("--resume", str(folder), "--port", self.endpoint.rpartition(":")[2])
            self._server.start = partial(self._start_server, *again)
            self._workers = [
                SupervisedProcess(_worker_name(number), partial(self._start_worker, number))
                for number in range(workers)
            ]
        except BaseException:
            self.end()
            raise

    def take_deaths(self) -> list[Death]:
        """The deaths since the last call."""
        deaths, self._deaths = self._deaths, []
        return deaths

    def poll(self) -> Status | None:
        """
        Wait a moment, replace dead and hung children, and request the status.

        None when the run has ended. Raises ServerUnreachable when no reply comes, and PsRlError when a child dies
        again and again.
        """
        self._server.child.wait(within_seconds=POLL_SECONDS)
        if self._server.child.exit_status == 0:
            return None
        if self._server.child.exit_status is not None:
            self._deaths.append(self._server.replace(self._server.child.cause_of_death()))
        reply, _ = ask(self._local_endpoint, messages.StatusRequest(request=1), timeout_seconds=REPLY_SECONDS)
        assert isinstance(reply, messages.StatusReply)
        self._server.note_work(reply.status.updates)
        if reply.status.phase != "draining":
            self._replace_hung_workers(reply.status)
            self._replace_dead_workers(is_drained=reply.status.drained)
        return reply.status

    def stop(self, reason: str) -> None:
        """End the run in order: workers leave, the server writes a checkpoint and exits."""
        if self.endpoint is None:
            return
        request = messages.StopRequest(request=1, reason=reason)
        try:
            ask(self._local_endpoint, request, timeout_seconds=REPLY_SECONDS)
        except (ServerUnreachable, RequestRefused):
            self._server.child.end(within_seconds=LEAVE_SECONDS)

    def end(self) -> None:
        """End every child, by force if needed."""
        server = self._server.child
        for child in [*(process.child for process in self._workers), server]:
            child.wait(within_seconds=LEAVE_SECONDS if server.exit_status == 0 else 0)
            child.end(within_seconds=LEAVE_SECONDS)

    @property
    def _local_endpoint(self) -> str:
        """HOST:PORT of the server for processes of this machine."""
        assert self.endpoint is not None, "the run has ended"
        return (
            "127.0.0.1:" + self.endpoint.rpartition(":")[2]
            if bare_host(self._host) in EVERY_INTERFACE
            else self.endpoint
        )

    def _start_server(self, *flags: str) -> Child:
        return Child("ps_server", ["--host", self._host, *flags], self._folder / SERVER_LOG)

    def _start_worker(self, number: int) -> Child:
        # A worker that replaces another one gets its number, because it has its name.
        flags = ["--server", self._local_endpoint, "--name", _worker_name(number), *self._worker_flags]
        return Child("rl_worker", flags, self._folder / worker_log(number))

    def _replace_hung_workers(self, status: Status) -> None:
        """Note the work of each worker; replace a stalled one, and one that is silent though its process runs."""
        workers = {worker.worker_id: worker for worker in status.workers}
        for process in self._workers:
            worker, child = workers.get(process.name), process.child
            # A status from before this child was started is that of its predecessor.
            if worker is None or worker.silent_seconds >= child.age_seconds or child.exit_status is not None:
                continue
            process.note_work(worker.pushes)
            if worker.stalled:
                why = child.last_line().partition(f"{process.name}: ")[2] or "it is stalled"
            elif not worker.alive and worker.silent_seconds > self._stall_seconds and not child.is_paused:
                why = f"silent for {worker.silent_seconds:.0f} s, though its process runs"
            else:
                continue
            child.end(within_seconds=HUNG_SECONDS)
            self._deaths.append(process.replace(f"it hangs: {why}"))

    def _replace_dead_workers(self, *, is_drained: bool) -> None:
        """Workers that have left a drained run are started again when it goes on; else the last to leave ends it."""
        for process in self._workers:
            if process.child.exit_status not in (None, 0):
                self._deaths.append(process.replace(process.child.cause_of_death()))
        if self._was_drained and not is_drained:
            for process in self._workers:
                if process.child.exit_status == 0:
                    process.begin_again()
        self._was_drained = is_drained
        if not is_drained and all(process.child.exit_status == 0 for process in self._workers):
            self.stop("all workers have left")


def _worker_name(number: int) -> str:
    return f"worker-{number}"


def last_written(path: Path) -> int:
    """When a file was written, in nanoseconds; 0: there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def endpoint_of(server: Child, path: Path, *, written_before: int) -> str | None:
    """
    HOST:PORT, which the server writes to the endpoint file when it listens, and removes when it exits.

    None when the run has ended already: a resumed run has reached its limit. Raises PsRlError when the server fails.
    """
    while server.age_seconds < START_SECONDS:
        has_exited = server.wait(within_seconds=0.05)
        if last_written(path) not in (0, written_before) and (endpoint := path.read_text().strip()):
            return endpoint
        if has_exited and server.exit_status == 0:
            return None
        if has_exited:
            raise PsRlError(f"the server failed: {server.cause_of_death()}")
    raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {server.log}")
