"""
A server, or the shards of one, and its workers as child processes on this machine, supervised until the run ends.

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
from ps_common.run_folder.paths import SERVER_LOG, shard_folder
from ps_common.sockets.request import ask, status_of
from rl_cluster.failed_run import record_failure
from rl_cluster.silent_server import SilentServer
from rl_cluster.workers import SupervisedWorkers

POLL_SECONDS = 0.5  # between two status requests
REPLY_SECONDS = 2.0  # until a request has failed
START_SECONDS = 300.0  # for the server to come up; on a machine with fifty busy processes it has taken over 60
LEAVE_SECONDS = LAST_CHECKPOINT_SECONDS  # for servers to leave
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
        shards: Sequence[str] = (),
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Start all processes; `folder` is the run folder, `shards` are the addresses of all shards if there are several.

        Raises PsRlError when a server fails to start, and Interrupted when this program is `leaving` before it has.
        """
        self._leaving = leaving
        self._folder = folder
        self._shards = shards
        self._host = host
        self._worker_flags = ["--stall-seconds", str(stall_seconds), *worker_flags]
        self._deaths: list[str] = []
        self._notes: list[str] = []
        self._stall_seconds = stall_seconds
        self._was_drained = self._is_draining = False  # as the first server has said last
        self._ending = ""  # the reason for which the run was asked to end
        self._workers = SupervisedWorkers([], self._start_worker, stall_seconds=stall_seconds)
        self._servers: list[SupervisedProcess] = []
        self._silences: list[SilentServer] = []  # of the servers, in their order
        try:
            self.endpoint = self._start_servers(server_flags, port)
            if self.endpoint is None:
                return
            names = [f"worker-{number}" for number in range(workers)]
            self._workers = SupervisedWorkers(names, self._start_worker, stall_seconds=stall_seconds)
        except BaseException:
            self.end()
            raise

    def _start_servers(self, server_flags: Sequence[str], port: int) -> str | None:
        """Start all servers, and wait until they listen. The address of the first; None when the run has ended."""
        ports = [int(address.rpartition(":")[2]) for address in self._shards] or [port]
        for number, its_port in enumerate(ports, 1):
            start = partial(self._start_server, number, *server_flags, "--port", str(its_port))
            name = f"shard {number}" if self._shards else "the server"
            self._servers.append(SupervisedProcess(name, start, counts_work=True))
        listening = [endpoint_of(server.child, leaving=self._leaving) for server in self._servers]
        for number, (server, endpoint) in enumerate(zip(self._servers, listening, strict=True), 1):
            again = ("--resume", str(self._folder), "--port", str(endpoint).rpartition(":")[2])
            server.start = partial(self._start_server, number, *again)
            silence = SilentServer(server, stall_seconds=self._stall_seconds, start_seconds=START_SECONDS)
            self._silences.append(silence)
        return listening[0]

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
        again and again, or a shard has failed when the run has ended.
        """
        first, others = self._servers[0], self._servers[1:]
        first.child.wait(within_seconds=POLL_SECONDS)
        are_started = [server.start_if_due() for server in self._servers]
        if not all(are_started):
            time.sleep(POLL_SECONDS)
            raise ServerUnreachable("a server died again, and is started again in a moment")
        if first.child.is_over:
            end_all([shard.child for shard in others], within_seconds=LEAVE_SECONDS)
            for shard in others:
                if shard.child.has_died:
                    raise PsRlError(f"the run is over, and {shard.name} has failed: {shard.child.cause_of_death()}")
            return None
        self._deaths += deaths_of([first])
        try:
            status = self._status()
        except ServerUnreachable:
            if not self._is_draining:
                self._deaths += deaths_of(others) + self._workers.replace_dead(None)
            raise
        self._is_draining = status.phase == "draining"
        if status.phase == STANDBY_PHASE:
            raise PsRlError(f"{FOLLOWS} (ps-ctl stop --server …; {first.child.log} names it) or take another --port")
        for server in self._servers:  # each update is one of every shard
            server.note_work(status.updates)
        if not self._is_draining:
            self._deaths += deaths_of(others)
            self._deaths += self._workers.replace_dead(status)
            self._follow_drain(is_drained=status.drained)
            if self._ending:
                self.stop(self._ending)
        return status

    def _status(self) -> Status:
        """That of the first server. A server that does not reply though its process runs is reported, and replaced."""
        statuses: list[Status] = []
        for address, silence in zip(self._shards or [self._local_endpoint], self._silences, strict=True):
            try:
                statuses.append(status_of(address, timeout_seconds=REPLY_SECONDS).status)
                silence.has_replied()
            except ServerUnreachable:
                note, death = silence.look()
                self._notes += filter(None, [note])
                self._deaths += filter(None, [death])
                if not statuses:
                    raise
        return statuses[0]

    def fail(self, reason: str) -> None:
        """Have the server record that the run has failed, and end it; where no server replies, write that down."""
        self.stop(reason, failed=True)
        self.end()
        record_failure(shard_folder(self._folder, 1, len(self._shards) or 1), reason)

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
            end_all([server.child for server in self._servers], within_seconds=LEAVE_SECONDS)

    def end(self) -> None:
        """End every child, by force if needed."""
        servers = [server.child for server in self._servers]
        told_seconds = TOLD_SECONDS if servers and servers[0].is_over else 0.0
        end_all(self._workers.children, unasked_seconds=told_seconds, within_seconds=WORKERS_SECONDS)
        end_all(servers, within_seconds=LEAVE_SECONDS)

    @property
    def _local_endpoint(self) -> str:
        """HOST:PORT of the server for processes of this machine."""
        assert self.endpoint is not None, "the run has ended"
        return (
            "127.0.0.1:" + self.endpoint.rpartition(":")[2]
            if bare_host(self._host) in EVERY_INTERFACE
            else self.endpoint
        )

    def _start_server(self, number: int, *flags: str) -> Child:
        place = ["--shard", f"{number}/{len(self._shards)}", "--shards", *self._shards] if self._shards else []
        log = SERVER_LOG if number == 1 else f"server-{number}.log"
        return Child("ps_server", ["--host", self._host, *flags, *place], self._folder / log)

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
