"""
The programs that an actor keeps running on its node: ps-server, or one rl-worker. Nothing here knows Ray.

A program that is killed is started again at once. One that fails waits longer and longer: the server of a node that was
cut off may hold the lock of the run folder for a while. A program that fails before any has run has wrong flags, and is
not started again.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ps_common.errors import RequestRefused, ServerUnreachable, SettingsError
from ps_common.program.child_processes import PS_CTL, Child, command_of
from ps_common.protocol import messages
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.endpoint_file import read_endpoint, write_endpoint
from ps_common.run_folder.paths import CHECKPOINTS, ENDPOINT, SERVER_LOG, SETTINGS, worker_log
from ps_common.sockets.curve import CurveFlags
from ps_common.sockets.request import ask

LEAVE_SECONDS = 10.0  # for a program to leave in order
REPLY_SECONDS = 5.0
MOST_FAILURES = 12  # in a row
LONGEST_PAUSE_SECONDS = 10.0  # before a program that has failed is started again
STEADY_SECONDS = 60.0  # of work after which earlier failures do not count

SERVER_KEY, WORKER_SECRET, ADMIN_SECRET = "server.key", "worker.key_secret", "admin.key_secret"


@dataclass(frozen=True)
class RunPlan:
    """A run as the user wants it."""

    folder: str  # absolute
    settings: str  # TOML; "": the first worker decides
    flags: tuple[str, ...]  # of ps-server, which change a run that goes on
    checkpoint_seconds: float | None  # None: those of ps-server
    has_keys: bool


class KeptRunning:
    """One program after another, until one ends in order or it is hopeless."""

    def __init__(self, start: Callable[[], Child], *, has_run: bool, now: float) -> None:
        """`has_run`: a failure need not be the fault of the flags."""
        self.child = start()
        self.is_over = False
        self.failure = ""  # why it is hopeless
        self._start = start
        self._has_run = has_run
        self._failures = 0
        self._due: float | None = None  # when the next one is to be started
        self._started = now

    def poll(self, *, now: float) -> bool:
        """Start the next program if that is due. Returns whether there is more to do."""
        if self._due is not None:
            if now >= self._due:
                self.child, self._due, self._started = self._start(), None, now
            return True
        status = self.child.exit_status
        if status is None:
            return True
        if self.child.is_over:
            self.is_over = True
            return False
        self._failures = 1 if now - self._started >= STEADY_SECONDS else self._failures + 1
        is_killed = status < 0 or self.child.has_left
        if self._failures > MOST_FAILURES or not (is_killed or self._has_run):
            self.failure = self.child.cause_of_death()
            return False
        self._has_run = True
        self._due = now + (0.0 if is_killed else min(2.0 ** (self._failures - 1), LONGEST_PAUSE_SECONDS))
        return True

    def end(self) -> None:
        """Have it leave in order."""
        self.child.end(within_seconds=LEAVE_SECONDS)


class ServerProcess:
    """The run's server on this node, which other nodes reach at `host`."""

    def __init__(self, plan: RunPlan, *, host: str, has_run: bool, now: float) -> None:
        """Raises SettingsError when the run folder cannot be used."""
        self.folder = Path(plan.folder)
        self._plan = plan
        self._host = host
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if plan.has_keys and not (self.folder / "keys").exists():
                keygen = command_of(PS_CTL, ["keygen", str(self.folder / "keys")])
                subprocess.run(keygen, check=True, capture_output=True)
            if plan.settings and not self._has_checkpoint:
                (self.folder / SETTINGS).write_text(plan.settings, encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"--run-dir {self.folder}: cannot be used: {error.strerror}") from error
        self.program = KeptRunning(self._start, has_run=has_run or self._has_checkpoint, now=now)

    @property
    def address(self) -> str:
        """HOST:PORT; "" while it does not listen."""
        return read_endpoint(self.folder / ENDPOINT)

    def worker_keys(self) -> dict[str, bytes]:
        """The files that a worker needs, by name; none of a server without keys."""
        if not self._plan.has_keys:
            return {}
        return {name: (self.folder / "keys" / name).read_bytes() for name in (SERVER_KEY, WORKER_SECRET)}

    def status(self) -> Status | None:
        """None while it does not reply."""
        reply = self._ask(messages.StatusRequest(request=1))
        return reply.status if isinstance(reply, messages.StatusReply) else None

    def stop_run(self, reason: str) -> None:
        """End the run in order, for its workers too."""
        self._ask(messages.StopRequest(request=1, reason=reason))

    @property
    def _has_checkpoint(self) -> bool:
        return bool(newest_first(self.folder / CHECKPOINTS))

    def _start(self) -> Child:
        plan, folder = self._plan, str(self.folder)
        if self._has_checkpoint:
            flags = ["--resume", folder, *plan.flags]
        elif plan.settings:
            flags = ["--config", str(self.folder / SETTINGS), "--run-dir", folder]
        else:
            flags = ["--run-dir", folder, *plan.flags]
        flags += ["--host", self._host, "--port", "0"]
        flags += [] if plan.checkpoint_seconds is None else ["--checkpoint-seconds", str(plan.checkpoint_seconds)]
        if plan.has_keys:
            keys = self.folder / "keys"
            flags += ["--curve-secret", str(keys / "server.key_secret"), "--authorized-keys", str(keys / "authorized")]
        return Child("ps_server", flags, self.folder / SERVER_LOG)

    def _ask(self, message: messages.ToServer) -> messages.ToWorker | None:
        if not (address := self.address):
            return None
        keys = None
        if self._plan.has_keys:
            folder = self.folder / "keys"
            keys = CurveFlags(curve_server_key=folder / SERVER_KEY, curve_secret=folder / ADMIN_SECRET).client_keys()
        try:
            return ask(address, message, timeout_seconds=REPLY_SECONDS, keys=keys)[0]
        except (ServerUnreachable, RequestRefused):
            return None


class WorkerProcess:
    """One worker on this node. Its folder in the run folder, shared or not, has the server's address and the keys."""

    def __init__(
        self, number: int, run_folder: Path, keys: Mapping[str, bytes], flags: Sequence[str], *, now: float
    ) -> None:
        """Raises SettingsError when its files cannot be written."""
        own = run_folder / f"worker-{number}"
        self._endpoint = own / ENDPOINT
        self._number = number
        self._flags = ["--server", str(self._endpoint), "--name", f"ray-{number}", *flags]
        try:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in keys.items():
                path = own / name
                path.touch(mode=0o600)
                path.write_bytes(content)
        except OSError as error:
            raise SettingsError(f"{error.filename}: cannot be written: {error.strerror}") from error
        if keys:
            self._flags += ["--curve-server-key", str(own / SERVER_KEY), "--curve-secret", str(own / WORKER_SECRET)]
        self._log = run_folder / worker_log(number)
        self.program = KeptRunning(self._start, has_run=True, now=now)

    def follow(self, address: str) -> None:
        """The server listens there now; "" changes nothing."""
        if address and address != read_endpoint(self._endpoint):
            write_endpoint(self._endpoint, address)

    def _start(self) -> Child:
        return Child("rl_worker", self._flags, self._log)
