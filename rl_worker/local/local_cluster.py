"""
A server and its workers as child processes on this machine, kept alive until the run ends.

A child that dies is started again, the server from its newest checkpoint. One that keeps dying without having worked
for a while ends the run: what killed it would kill it for ever. Each death is told to whoever looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.errors import PsRlError, RequestRefused, ServerUnreachable
from common.protocol import messages
from common.protocol.addresses import EVERY_INTERFACE, bare_host
from common.protocol.status import Status
from common.run_folder.paths import ENDPOINT, GIFS, SERVER_LOG, worker_log
from common.sockets.request import ask
from rl_worker.local.child_processes import Child

LOOK_SECONDS = 0.5  # between two looks at the run
ANSWER_SECONDS = 2.0
START_SECONDS = 300.0  # for the server to come up; on a machine with fifty busy processes it has taken over 60
LEAVE_SECONDS = 10.0  # for the children to leave when the run has ended
HANGING_SECONDS = 1.0  # for a child that hangs: it may hear a signal, or not
MOST_DEATHS = 3  # in a row, of one child, without progress between them
PROGRESS_SECONDS = 60.0  # of work: a life that had so much of it was progress


@dataclass(frozen=True)
class Death:
    """A child has died, and another one has taken its place."""

    who: str  # "the server" or the name of a worker
    why: str  # the last line of its traceback, or the signal that killed it
    log: Path
    in_a_row: int  # deaths of this child, this one included, since one that had worked for a while

    def __str__(self) -> str:
        return f"{self.who} died: {self.why} (its log: {self.log}); it is started again"


class Place:
    """One of the run's processes, whichever child has the place just now."""

    def __init__(self, name: str, start: Callable[[], Child]) -> None:
        self.name = name
        self.start = start  # a child for this place; may be changed
        self.child = start()
        self._done = 0  # by the child
        self._worked_from = self._worked_until = 0.0  # its ages when more was first and last seen to be done
        self._deaths = 0  # in a row

    def works(self, done: int) -> None:
        """The child has done so much by now."""
        if done <= self._done:
            return
        self._worked_until = self.child.age_seconds
        if self._done == 0:
            self._worked_from = self._worked_until
        self._done = done

    def replace(self, why: str) -> Death:
        """Start another child for the one that has died. Raises PsRlError when the last few came to nothing."""
        worked = self._worked_until - self._worked_from >= PROGRESS_SECONDS
        self._deaths = 1 if worked else self._deaths + 1
        death = Death(self.name, why, self.child.log, self._deaths)
        if self._deaths >= MOST_DEATHS:
            raise PsRlError(
                f"{death.who} died {self._deaths} times in a row, each within {PROGRESS_SECONDS:.0f} s of work: "
                f"{death.why} (its log: {death.log})"
            )
        self.child = self.start()
        self._done, self._worked_from, self._worked_until = 0, 0.0, 0.0
        return death


class LocalCluster:
    """One run; see above."""

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
        """Starts everything; `folder` gets logs, checkpoints and metrics. Raises PsRlError when that fails."""
        self._folder = folder
        self._host = host
        self._stall_seconds = stall_seconds
        self._worker_flags = ["--stall-seconds", str(stall_seconds), "--gif-dir", str(folder / GIFS), *worker_flags]
        self._deaths: list[Death] = []
        self._workers: list[Place] = []
        written_before = self._endpoint_written()  # by a server that was killed, or one that holds the folder
        self._server = Place("the server", partial(self._start_server, *server_flags, "--port", str(port)))
        try:
            self.endpoint = self._wait_for_endpoint(written_before)
            again = ("--resume", str(folder), "--port", self.endpoint.rpartition(":")[2])
            self._server.start = partial(self._start_server, *again)
            self._workers = [
                Place(_worker_name(number), partial(self._start_worker, number)) for number in range(workers)
            ]
        except BaseException:
            self.end()
            raise

    def take_deaths(self) -> list[Death]:
        """Those since the last call."""
        deaths, self._deaths = self._deaths, []
        return deaths

    def look(self) -> Status | None:
        """Wait a moment, replace the dead, and ask how the run is; None when the run has ended. Raises PsRlError."""
        self._server.child.wait(within_seconds=LOOK_SECONDS)
        if self._server.child.exit_status == 0:
            return None
        if self._server.child.exit_status is not None:
            self._deaths.append(self._server.replace(self._server.child.last_words()))
        reply, _ = ask(self._local_endpoint, messages.StatusRequest(request=1), timeout_seconds=ANSWER_SECONDS)
        assert isinstance(reply, messages.StatusReply)
        self._server.works(reply.status.updates)
        if reply.status.phase != "draining":
            self._end_what_hangs(reply.status)
            self._replace_dead_workers()
        return reply.status

    def stop(self, reason: str) -> None:
        """End the run in order: workers leave, the server saves and exits."""
        request = messages.StopRequest(request=1, reason=reason)
        try:
            ask(self._local_endpoint, request, timeout_seconds=ANSWER_SECONDS)
        except (ServerUnreachable, RequestRefused):
            self._server.child.end(within_seconds=LEAVE_SECONDS)

    def end(self) -> None:
        """Whatever happened: no child is left after this."""
        server = self._server.child
        for child in [*(place.child for place in self._workers), server]:
            child.wait(within_seconds=LEAVE_SECONDS if server.exit_status == 0 else 0)
            child.end(within_seconds=LEAVE_SECONDS)

    @property
    def _local_endpoint(self) -> str:
        """Where the server is for processes of this machine."""
        return (
            "127.0.0.1:" + self.endpoint.rpartition(":")[2]
            if bare_host(self._host) in EVERY_INTERFACE
            else self.endpoint
        )

    def _start_server(self, *flags: str) -> Child:
        return Child("ps_server", ["--host", self._host, *flags], self._folder / SERVER_LOG)

    def _start_worker(self, number: int) -> Child:
        # Named, so that one who takes the place of another has its number too.
        flags = ["--server", self._local_endpoint, "--name", _worker_name(number), *self._worker_flags]
        return Child("rl_worker", flags, self._folder / worker_log(number))

    def _endpoint_written(self) -> int:
        """When a server has written down where it listens; 0: none has."""
        path = self._folder / ENDPOINT
        return path.stat().st_mtime_ns if path.exists() else 0

    def _wait_for_endpoint(self, written_before: int) -> str:
        """HOST:PORT, which our server writes down when it listens."""
        server = self._server.child
        while server.age_seconds < START_SECONDS:
            is_ours = self._endpoint_written() not in (0, written_before)
            if is_ours and (endpoint := (self._folder / ENDPOINT).read_text().strip()):
                return endpoint
            if server.wait(within_seconds=0.05):
                raise PsRlError(f"the server failed: {server.last_words()}")
        raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {server.log}")

    def _end_what_hangs(self, status: Status) -> None:
        """Note what workers have done, and replace those that stand still, or are silent though their process runs."""
        workers = {worker.worker_id: worker for worker in status.workers}
        for place in self._workers:
            worker, child = workers.get(place.name), place.child
            # One that was last heard before this child was started is the child before it.
            if worker is None or worker.silent_seconds >= child.age_seconds or child.exit_status is not None:
                continue
            place.works(worker.pushes)
            if worker.stalled:
                why = child.last_line().partition(f"{place.name}: ")[2] or "it stands still"
            elif not worker.alive and worker.silent_seconds > self._stall_seconds and not child.is_paused:
                why = f"silent for {worker.silent_seconds:.0f} s, though its process runs"
            else:
                continue
            child.end(within_seconds=HANGING_SECONDS)
            self._deaths.append(place.replace(f"it hangs: {why}"))

    def _replace_dead_workers(self) -> None:
        for place in self._workers:
            if place.child.exit_status not in (None, 0):
                self._deaths.append(place.replace(place.child.last_words()))
        if all(place.child.exit_status == 0 for place in self._workers):
            self.stop("all workers have left")


def _worker_name(number: int) -> str:
    return f"worker-{number}"
