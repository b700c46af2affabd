"""Child processes that never outlive their parent. Each writes a log of its own, or the parent reads its lines."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from common.errors import SettingsError
from common.program.start import places_beside_installed

PR_SET_PDEATHSIG = 1
KILLED_SECONDS = 5.0  # for a killed child to be gone
OUTPUT_SECONDS = 1.0  # for the rest of the output of a child that has ended
LAST_BYTES = 65_536  # at the end of a log: the last line is searched for there
RL_EVAL = "from rl_worker.__main__ import evaluate; evaluate()"


class Child:
    """`python -m module arguments` as a child process; its output is appended to `log`."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        """Raises SettingsError when the log cannot be written."""
        self.module = module
        self.log: Path | None = log
        self.started = time.monotonic()
        with _opened(log) as output:
            self._log_start = output.tell()  # earlier lines are those of former children
            self._process = _start(module, arguments, output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger), on Linux; elsewhere False."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0] in (
            b"T",
            b"t",
        )  # the state follows the name, which may contain anything

    @property
    def age_seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started

    def last_line(self) -> str:
        """The last line of its log, where a program that fails says why; "" when it has written none."""
        assert self.log is not None, "it has a log"
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def cause_of_death(self) -> str:
        """Why it has ended: the signal that killed it, or else the last line of its log."""
        assert self.exit_status is not None, "it has ended"
        return (
            how_it_ended(self.exit_status)
            if self.exit_status < 0
            else self.last_line() or how_it_ended(self.exit_status)
        )

    def ask_to_leave(self) -> None:
        """Send SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, *, within_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL if it has not left by then."""
        self.ask_to_leave()
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is in the kernel, waiting for a disk
                self._process.wait(KILLED_SECONDS)

    def wait(self, *, within_seconds: float) -> bool:
        """Whether it leaves by itself within this time."""
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


class PipedChild(Child):
    """The same, without a log: `on_line` gets each line of its output, in a thread of its own."""

    def __init__(self, module: str, arguments: Sequence[str], on_line: Callable[[str], None]) -> None:
        self.module = module
        self.log = None
        self.started = time.monotonic()
        self._process = _start(module, arguments, subprocess.PIPE)
        self._on_line = on_line
        self._last_line = ""
        self._reader = threading.Thread(target=self._read, name="child-output", daemon=True)
        self._reader.start()

    def last_line(self) -> str:
        """The last line of its output that is not empty."""
        self._reader.join(OUTPUT_SECONDS)
        return self._last_line

    def _read(self) -> None:
        """The thread. It ends with the output; a process that the child has left behind may keep that open."""
        output = self._process.stdout
        assert output is not None, "its output is a pipe"
        with output:
            while line := output.readline(LAST_BYTES):
                text = line.decode(errors="replace").rstrip()
                self._last_line = text or self._last_line
                self._on_line(text)


def end_all(children: Sequence[Child], *, within_seconds: float) -> None:
    """Ask all to leave, wait for them at the same time, and kill those that have not left by then."""
    for child in children:
        child.ask_to_leave()
    end = time.monotonic() + within_seconds
    for child in children:
        child.end(within_seconds=max(0.0, end - time.monotonic()))


def child_environment() -> dict[str, str]:
    """Environment variables of a Python child: it finds the modules that this process finds, and speaks UTF-8."""
    places = [*places_beside_installed(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONIOENCODING": "utf-8:backslashreplace"}


def rl_eval_command(flags: Sequence[str]) -> list[str]:
    """The words that start the `rl-eval` beside this program, which no program but rl-worker's may import."""
    return [sys.executable, "-P", "-c", RL_EVAL, *flags]  # -P: no imports from the working folder


def _start(module: str, arguments: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],  # -P: no imports from the working folder
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=child_environment() | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        start_new_session=True,  # the terminal sends Ctrl-C to the parent alone, which ends the run in order
        preexec_fn=die_with_parent,
    )


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
    except ValueError:  # a signal without a name
        return f"killed by signal {-status}"


def die_with_parent() -> None:
    """Runs in the child. On Linux the kernel then ends the child when its parent dies; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
