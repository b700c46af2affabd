"""Child processes that never outlive their parent, each with a log file of its own."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from common.errors import SettingsError

PR_SET_PDEATHSIG = 1
KILLED_SECONDS = 5.0  # for a child to be gone that was killed
LAST_BYTES = 65_536  # of a log: its last line is looked for in these


class Child:
    """A program of ours as a child process: `module` is run with `arguments`, its output goes to `log`."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        """Raises SettingsError when its log cannot be written."""
        self.module = module
        self.log = log
        self.started = time.monotonic()
        with _opened(log) as output:
            self._log_start = output.tell()  # lines before it are of children that had this log before
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],  # -P: nothing is taken from the working folder first
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the parent, which ends the run in order
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def is_paused(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP, a debugger). Linux tells; elsewhere it is taken to run."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0] in (b"T", b"t")  # after the name, which may hold anything

    @property
    def age_seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.started

    def last_line(self) -> str:
        """The last line that it has written to its log: where it says why it left; "" when it has written none."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def last_words(self) -> str:
        """Why it has ended: what it said last, or the signal that killed it, which it could not tell."""
        assert self.exit_status is not None, "it has ended"
        return (
            how_it_ended(self.exit_status)
            if self.exit_status < 0
            else self.last_line() or how_it_ended(self.exit_status)
        )

    def end(self, *, within_seconds: float) -> None:
        """Ask it to leave, and make it leave when it has not by then."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is in the kernel, which waits for a disk
                self._process.wait(KILLED_SECONDS)

    def wait(self, *, within_seconds: float) -> bool:
        """Whether it has left by itself by then."""
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _opened(log: Path) -> IO[bytes]:
    try:
        return log.open("ab")
    except OSError as error:
        raise SettingsError(f"{log}: cannot be written: {error.strerror}") from error


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # one without a name
        return f"killed by signal {-status}"


def die_with_parent() -> None:
    """Runs in the child: have the kernel end it should the parent be killed. Linux only; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
