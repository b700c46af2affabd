"""A server and its workers as child processes on this machine, kept alive until the run ends."""

from pathlib import Path

from common import messages
from common.errors import PsRlError, Refused, ServerUnreachable
from common.run_folder import ENDPOINT, GIFS, SERVER_LOG, SETTINGS, worker_log
from common.run_spec import RunSpec
from common.status import Status
from common.zmq_request import ask
from rl_worker.children import Child

LOOK_SECONDS = 0.5  # between two looks at the run
ANSWER_SECONDS = 2.0
START_SECONDS = 300.0  # for the server to come up; on a machine with fifty busy processes it has taken over 60
LEAVE_SECONDS = 10.0  # for the children to leave when the run has ended
QUICK_DEATH_SECONDS = 15.0  # a child that dies sooner would die again


class LocalCluster:
    """
    One run. A child that dies after a while is replaced, the server from its newest checkpoint; one that dies at once
    ends the run with what it said last.
    """

    def __init__(self, run: RunSpec, folder: Path, *, workers: int, device: str, render: bool) -> None:
        """Starts everything; `folder` gets logs, checkpoints and metrics. Raises PsRlError when that fails."""
        self._folder = folder
        self._flags = ["--device", device, "--gif-dir", str(folder / GIFS), *(["--render"] if render else [])]
        config = folder / SETTINGS
        config.write_text(run.to_toml())
        self._workers: list[Child] = []
        self._server = self._start_server("--config", str(config), "--run-dir", str(folder), "--port", "0")
        try:
            self.endpoint = self._wait_for_endpoint()
            self._workers = [self._start_worker(number) for number in range(workers)]
        except BaseException:
            self.end()
            raise

    def look(self) -> Status | None:
        """Wait a moment, replace the dead, and ask how the run is; None when the run has ended. Raises PsRlError."""
        self._server.wait(within_seconds=LOOK_SECONDS)
        if self._server.exit_status == 0:
            return None
        if self._server.exit_status is not None:
            self._check_age(self._server, "the server")
            port = self.endpoint.rpartition(":")[2]
            self._server = self._start_server("--resume", str(self._folder), "--port", port)
        reply, _ = ask(self.endpoint, messages.StatusRequest(request=1), timeout_seconds=ANSWER_SECONDS)
        assert isinstance(reply, messages.StatusReply)
        if reply.status.phase != "draining":
            self._replace_dead_workers()
        return reply.status

    def stop(self, reason: str) -> None:
        """End the run in order: workers leave, the server saves and exits."""
        try:
            ask(self.endpoint, messages.StopRequest(request=1, reason=reason), timeout_seconds=ANSWER_SECONDS)
        except (ServerUnreachable, Refused):
            self._server.end(within_seconds=LEAVE_SECONDS)

    def end(self) -> None:
        """Whatever happened: no child is left after this."""
        for child in [*self._workers, self._server]:
            child.wait(within_seconds=LEAVE_SECONDS if self._server.exit_status == 0 else 0)
            child.end(within_seconds=LEAVE_SECONDS)

    def _start_server(self, *flags: str) -> Child:
        return Child("ps_server", ["--host", "127.0.0.1", *flags], self._folder / SERVER_LOG)

    def _start_worker(self, number: int) -> Child:
        # Named, so that one who takes the place of another has its number too: records are made of worker 0.
        flags = ["--server", self.endpoint, "--name", f"worker-{number}", *self._flags]
        return Child("rl_worker", flags, self._folder / worker_log(number))

    def _wait_for_endpoint(self) -> str:
        """HOST:PORT, which the server writes down when it listens."""
        path = self._folder / ENDPOINT
        while self._server.age_seconds < START_SECONDS:
            if path.exists() and (endpoint := path.read_text().strip()):
                return endpoint
            if self._server.wait(within_seconds=0.05):
                raise PsRlError(f"the server failed: {self._server.last_line()}")
        raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {self._server.log}")

    def _replace_dead_workers(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.exit_status not in (None, 0):
                self._check_age(worker, f"worker {number}")
                self._workers[number] = self._start_worker(number)
        if all(worker.exit_status == 0 for worker in self._workers):
            self.stop("all workers have left")

    def _check_age(self, child: Child, who: str) -> None:
        if child.age_seconds < QUICK_DEATH_SECONDS:
            raise PsRlError(f"{who} failed: {child.last_line()} (its log: {child.log})")
