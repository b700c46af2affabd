"""
The programs that an actor keeps running on its node: ps-server, or one rl-worker. Nothing here knows Ray.

A program that dies is started again for over a minute: the server of a node that was cut off may hold the lock of the
run folder for a while. A server that fails before any has run has wrong flags, and is not started again.
"""

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ps_common.errors import RequestRefused, ServerUnreachable, SettingsError
from ps_common.program.child_processes import Child, command_of
from ps_common.program.supervision import SupervisedProcess
from ps_common.protocol import messages
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import CHECKPOINTS, ENDPOINT, SERVER_LOG, write_whole
from ps_common.settings.run_files import SETTINGS
from ps_common.sockets.curve import ClientKeys, CurveFlags
from ps_common.sockets.request import ask, status_of

REPLY_SECONDS = 5.0
MOST_DEATHS = 13  # in a row

SERVER_KEY, WORKER_SECRET, ADMIN_SECRET = "server.key", "worker.key_secret", "admin.key_secret"


@dataclass(frozen=True)
class RunPlan:
    """A run as the user wants it."""

    folder: str  # absolute
    settings: str  # TOML; "": the first worker decides
    flags: tuple[str, ...]  # of ps-server, which change a run that goes on
    checkpoint_seconds: float | None  # None: those of ps-server
    has_keys: bool


class ServerProcess:
    """The run's server on this node, which other nodes reach at `host`."""

    def __init__(self, plan: RunPlan, *, host: str, has_run: bool) -> None:
        """`has_run`: a failure need not be the fault of the flags. Raises SettingsError for an unusable run folder."""
        self.folder = Path(plan.folder)
        self._plan = plan
        self._host = host
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if plan.has_keys and not (self.folder / "keys").exists():
                keygen = command_of("ps_ctl", ["keygen", str(self.folder / "keys")])
                subprocess.run(keygen, check=True, capture_output=True, encoding="utf-8", errors="replace")
            if plan.settings and not self._has_checkpoint:
                write_whole(self.folder / SETTINGS, plan.settings)
        except OSError as error:
            raise SettingsError(f"--run-dir {self.folder}: cannot be used: {error.strerror}") from error
        except subprocess.CalledProcessError as error:
            raise SettingsError(f"--run-dir {self.folder}: keys cannot be made: {error.stderr.strip()}") from error
        must_come_up = not (has_run or self._has_checkpoint)
        self.process = SupervisedProcess("the server", self._start, must_come_up=must_come_up, most_deaths=MOST_DEATHS)

    @property
    def worker_flags(self) -> list[str]:
        """The flags by which a worker on any node finds the server, wherever it runs: it shares the run folder."""
        keys = self.folder / "keys"
        locked = ["--curve-server-key", str(keys / SERVER_KEY), "--curve-secret", str(keys / WORKER_SECRET)]
        return ["--server", str(self.folder / ENDPOINT), *(locked if self._plan.has_keys else [])]

    def status(self) -> Status | None:
        """None while it does not reply."""
        with contextlib.suppress(ServerUnreachable, RequestRefused):
            return status_of(self._address, timeout_seconds=REPLY_SECONDS, keys=self._keys()).status
        return None

    def stop_run(self, reason: str) -> None:
        """End the run in order, for its workers too."""
        request = messages.StopRequest(request=1, reason=reason)
        with contextlib.suppress(ServerUnreachable, RequestRefused):
            ask(self._address, request, timeout_seconds=REPLY_SECONDS, keys=self._keys())

    @property
    def _address(self) -> str:
        """HOST:PORT; "" while it does not listen."""
        return read_endpoint(self.folder / ENDPOINT)

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

    def _keys(self) -> ClientKeys | None:
        """Those of an admin."""
        if not self._plan.has_keys:
            return None
        folder = self.folder / "keys"
        return CurveFlags(curve_server_key=folder / SERVER_KEY, curve_secret=folder / ADMIN_SECRET).client_keys()


def worker_process(number: int, run_folder: Path, flags: Sequence[str]) -> SupervisedProcess:
    """One worker on this node, with these flags of rl-worker. Raises SettingsError when its log cannot be written."""
    name, log = f"ray-{number}", run_folder / f"worker-{number}.log"
    return SupervisedProcess(name, partial(Child, "rl_worker", [*flags, "--name", name], log), most_deaths=MOST_DEATHS)
