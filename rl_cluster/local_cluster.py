"""
A server and its workers as child processes on this machine, supervised until the run ends.

A child that dies is started again (common/ps_common/program/supervision.py), the server from its newest checkpoint.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ps_common.errors import PsRlError, RequestRefused, ServerUnreachable
from ps_common.program.child_processes import Child, end_all
from ps_common.program.stop_signals import LAST_CHECKPOINT_SECONDS, Interrupted
from ps_common.program.supervision import SupervisedProcess, deaths_of
from ps_common.protocol import messages
from ps_common.protocol.names import EVERY_INTERFACE, LONGEST_SENTENCE, as_text, bare_host
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_common.run_folder.paths import SERVER_LOG
from ps_common.sockets.request import ask, status_of
from rl_cluster.failed_run import record_failure
from rl_cluster.silent_server import SilentServer
from rl_cluster.workers import SupervisedWorkers

POLL_SECONDS = 0.5  # between two status requests
REPLY_SECONDS = 2.0  # until a request has failed
START_SECONDS = 300.0  # for the server to come up; on a machine with fifty busy processes it has taken over 60
LEAVE_SECONDS = LAST_CHECKPOINT_SECONDS  # for the server to leave
TOLD_SECONDS = 2.0  # for workers to leave when the server has told them that the run is over
WORKERS_SECONDS = 3.0  # for workers to leave when they are asked to
FOLLOWS = (
    "the server follows another one, which was promoted for the run that was served at its address before; to begin a "
    "new run, end that one"
)


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
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Start all processes; `folder` is the run folder.

        Raises PsRlError when the server fails to start, and Interrupted when this program is `leaving` before it has.
        """
        self._folder = folder
        self._host = host
        self._worker_flags = ["--stall-seconds", str(stall_seconds), *worker_flags]
        self._deaths: list[str] = []
        self._notes: list[str] = []
        self._was_drained = self._is_draining = False  # as the server has said last
        self._ending = ""  # the reason for which the run was asked to end
        self._workers = SupervisedWorkers([], self._start_worker, stall_seconds=stall_seconds)
        self._server = SupervisedProcess(
            "the server", partial(self._start_server, *server_flags, "--port", str(port)), counts_work=True
        )
        self._silence = SilentServer(self._server, stall_seconds=stall_seconds, start_seconds=START_SECONDS)
        try:
            self.endpoint = endpoint_of(self._server.child, leaving=leaving)
            if self.endpoint is None:
                return
            again = ("--resume", str(folder), "--port", self.endpoint.rpartition(":")[2])
            self._server.start = partial(self._start_server, *again)
            names = [f"worker-{number}" for number in range(workers)]
            self._workers = SupervisedWorkers(names, self._start_worker, stall_seconds=stall_seconds)
        except BaseException:
            self.end()
            raise

    def take_deaths(self) -> list[str]:
        """How processes have died since the last call."""
        deaths, self._deaths = self._deaths, []
        return deaths

    def take_notes(self) -> list[str]:
        """Further lines about its processes since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def poll(self) -> Status | None:
        """
        Wait a moment, replace dead and hung children, and request the status.

        None when the run has ended. Raises ServerUnreachable when no reply comes, and PsRlError when a child dies
        again and again.
        """
        server = self._server
        server.child.wait(within_seconds=POLL_SECONDS)
        if not server.start_if_due():
            time.sleep(POLL_SECONDS)
            raise ServerUnreachable("the server died again, and is started again in a moment")
        if server.child.is_over:
            return None
        self._deaths += deaths_of([server])
        try:
            status = self._status()
        except ServerUnreachable:
            if not self._is_draining:
                self._deaths += self._workers.replace_dead(None)
            raise
        self._is_draining = status.phase == "draining"
        if status.phase == STANDBY_PHASE:
            raise PsRlError(f"{FOLLOWS} (ps-ctl stop --server …; {server.child.log} names it) or take another --port")
        server.note_work(status.updates)
        if not self._is_draining:
            self._deaths += self._workers.replace_dead(status)
            self._follow_drain(is_drained=status.drained)
            if self._ending:
                self.stop(self._ending)
        return status

    def _status(self) -> Status:
        """A server that does not reply though its process runs is reported, and replaced. Raises ServerUnreachable."""
        try:
            status = status_of(self._local_endpoint, timeout_seconds=REPLY_SECONDS).status
        except ServerUnreachable:
            note, death = self._silence.look()
            self._notes += filter(None, [note])
            self._deaths += filter(None, [death])
            raise
        self._silence.has_replied()
        return status

    def fail(self, reason: str) -> None:
        """Have the server record that the run has failed, and end it; where no server replies, write that down."""
        self.stop(reason, failed=True)
        self.end()
        record_failure(self._folder, reason)

    def stop(self, reason: str, *, failed: bool = False) -> None:
        """
        End the run in order: workers leave, the server writes a checkpoint and exits.

        A server that dies before it has done so is started again, and asked again by `poll`.
        """
        self._ending = reason
        if self.endpoint is None:
            return
        request = messages.StopRequest(request=1, reason=as_text(reason, LONGEST_SENTENCE), failed=failed)
        try:
            ask(self._local_endpoint, request, timeout_seconds=REPLY_SECONDS)
        except (ServerUnreachable, RequestRefused):
            self._server.child.end(within_seconds=LEAVE_SECONDS)

    def end(self) -> None:
        """End every child, by force if needed."""
        told_seconds = TOLD_SECONDS if self._server.child.is_over else 0.0
        end_all(self._workers.children, unasked_seconds=told_seconds, within_seconds=WORKERS_SECONDS)
        self._server.child.end(within_seconds=LEAVE_SECONDS)

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

    def _follow_drain(self, *, is_drained: bool) -> None:
        """Workers that have left a drained run are started again when it goes on; else the last to leave ends it."""
        if self._was_drained and not is_drained:
            self._workers.start_those_that_left()
        self._was_drained = is_drained
        if not is_drained and self._workers.have_left:
            self.stop("all workers have left")

    def _start_worker(self, name: str) -> Child:
        # A worker that replaces another one gets its number, because it has its name.
        flags = ["--server", self._local_endpoint, "--name", name, *self._worker_flags]
        return Child("rl_worker", flags, self._folder / f"{name}.log")


def endpoint_of(server: Child, *, leaving: Callable[[], bool] = lambda: False) -> str | None:
    """
    HOST:PORT, which the server says when it listens.

    None when the run has ended already: a resumed run has reached its limit. Raises PsRlError when the server fails,
    and Interrupted when this program is `leaving`.
    """
    while server.age_seconds < START_SECONDS:
        if leaving():
            raise Interrupted
        has_exited = server.wait(within_seconds=0.05)
        if server.reason is not None and server.reason.how == "serves":
            return server.reason.text
        if has_exited and server.is_over:
            return None
        if has_exited:
            raise PsRlError(f"the server failed: {server.cause_of_death()}")
    raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {server.log}")
