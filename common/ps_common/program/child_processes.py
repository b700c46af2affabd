"""Child processes that never outlive their parent. Each writes a log of its own, or the parent reads its lines."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.fork_server import ONE_THREAD, Fork, fork
from ps_common.program.reasons import LAUNCHED, Reason, last_reason_in
from ps_common.program.start import places_beside_installed
from ps_common.settings.regular_file import opened_to_write

KILLED_SECONDS = 5.0  # for a killed child to be gone
OUTPUT_SECONDS = 1.0  # for the rest of the output of all children that have ended
LONGEST_LINE = 65_536  # bytes of a child's output; a longer line is cut
CHANNEL_BYTES = 65_536  # that a pipe holds

_running: WeakSet["Child"] = WeakSet()


class Child:
    """One of our programs as a child process, whose output is appended to `log`."""

    log: Path | None
    _process: subprocess.Popen[bytes] | Fork
    _variables: Mapping[str, str] = {}  # of its environment, added to those of this process
    _is_asked: bool  # to leave
    _reason: Reason | None
    _channel: int | None  # None: the child has ended, and its last report was read

    def __init__(
        self, program: str, arguments: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """
        `program`: as `command_of` takes it; `variables` are added to the environment of this process.

        Raises SettingsError when the log cannot be written.
        """
        self.log = log
        self._variables = variables or {}
        try:
            output = opened_to_write(log)
        except OSError as error:
            raise SettingsError(f"{log}: cannot be written: {error.strerror}") from error
        with output:
            self._start(program, arguments, stdout=output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        status = self._process.poll()
        self._read_reports(is_over=status is not None)
        return status

    @property
    def reason(self) -> Reason | None:
        """The last reason that it has reported; None without one."""
        self._read_reports(is_over=self._process.poll() is not None)
        return self._reason

    @property
    def has_left(self) -> bool:
        """Whether it has ended, and had reported that it leaves in order."""
        return self.exit_status is not None and self._reason is not None and self._reason.is_in_order

    @property
    def has_done_its_work(self) -> bool:
        """Whether it has ended, and had reported that there is nothing left to do."""
        return self.has_left and self._reason is not None and self._reason.how == "over"

    @property
    def is_over(self) -> bool:
        """
        Whether it has left in order and needs no successor: its work is done, or this process has asked it to leave.
        """
        return self.has_done_its_work or (self.has_left and self._is_asked)

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended the child, or has asked it to leave, so that it is not to blame."""
        return self.has_left or (self.exit_status or 0) < 0

    @property
    def has_died(self) -> bool:
        """Whether it has ended in another way."""
        return self.exit_status is not None and not self.has_left

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger), on Linux; elsewhere False."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0] in b"Tt"  # the state follows the name, which may contain anything

    @property
    def age_seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def cause_of_death(self) -> str:
        """The child's own report on its end, or else the signal that killed it, or its exit status."""
        status = self.exit_status
        assert status is not None, "it has ended"
        if self.has_left:
            return "a signal from elsewhere asked it to leave"
        if self._reason is not None and self._reason.is_failure:
            return self._reason.text
        return how_it_ended(status) + ("" if status < 0 else ", without a reason")

    def ask_to_leave(self) -> None:
        """Send SIGTERM once, since a second one would ask the child to end at once."""
        if not self._is_asked and self._process.poll() is None:
            self._process.terminate()
        self._is_asked = True

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def end(self, *, within_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL if it has not left by then."""
        self.ask_to_leave()
        try:
            has_left = self.wait(within_seconds=within_seconds)
        except KeyboardInterrupt:  # a second one: nobody waits any more
            self.kill()
            raise
        if not has_left:
            self.kill()
            self.wait(within_seconds=KILLED_SECONDS)  # in vain if the child waits for a disk in the kernel

    def wait(self, *, within_seconds: float | None = None) -> bool:
        """Whether it leaves by itself within this time; None: however long it takes."""
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return self.exit_status is not None

    def read_rest(self, *, within_seconds: float) -> None:
        """Wait for the rest of the output of a child that has ended, if the output comes through this process."""

    def _start(self, program: str, arguments: Sequence[str], **streams: IO[bytes] | int | None) -> None:
        self._started = time.monotonic()
        self._is_asked = False
        self._unread = b""
        self._reason = None
        self._lock = threading.Lock()  # of what was read
        channel, its_end = os.pipe()
        try:
            self._process = _started(program, arguments, its_end, streams, self._variables)
        except BaseException as error:
            os.close(channel)
            if isinstance(error, OSError):  # too many processes, or too little memory
                raise PsRlError(f"{program} cannot be started: {error.strerror}") from error
            raise
        finally:
            os.close(its_end)
        os.set_blocking(channel, False)
        self._channel = channel
        _running.add(self)

    def _read_reports(self, *, is_over: bool) -> None:
        with self._lock:
            if self._channel is None:
                return
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._channel, CHANNEL_BYTES):
                    self._unread += data
            self._reason = last_reason_in(self._unread) or self._reason
            self._unread = self._unread.rpartition(b"\n")[2]
            if is_over:
                os.close(self._channel)
                self._channel = None


class PipedChild(Child):
    """A child without a log: `on_line` gets each line of its output, in a thread of its own."""

    def __init__(self, program: str, arguments: Sequence[str], on_line: Callable[[str], None]) -> None:
        self.log = None
        read, write = os.pipe()
        self._output = open(read, "rb")  # noqa: SIM115  (the thread closes it)
        try:
            self._start(program, arguments, stdout=write)
        finally:
            os.close(write)
        self._on_line = on_line
        self._reader = threading.Thread(target=self._read, name="child-output", daemon=True)
        self._reader.start()

    def read_rest(self, *, within_seconds: float) -> None:
        self._reader.join(within_seconds)

    def _read(self) -> None:
        """The thread. It ends with the output; a process that the child has left behind may keep that open."""
        with self._output:
            while line := self._output.readline(LONGEST_LINE):
                self._on_line(line.decode(errors="replace").rstrip())


class LinkedChild(Child):
    """A child with the output of this process. Its standard input is one end of a pipe, whose other end is `link`."""

    def __init__(self, program: str, arguments: Sequence[str] = ()) -> None:
        self.log = None
        self.link, its_end = Pipe()
        with its_end:
            self._start(program, arguments, stdin=its_end.fileno())


def end_all(children: Sequence[Child], *, within_seconds: float, unasked_seconds: float = 0.0) -> None:
    """
    End all at the same time: they have `unasked_seconds` to leave by themselves, are then asked to, and killed if they
    have not left `within_seconds` after that. Their last lines are read then.
    """
    end = time.monotonic() + unasked_seconds
    for child in children:
        child.wait(within_seconds=max(0.0, end - time.monotonic()))
    for child in children:
        child.ask_to_leave()
    end = time.monotonic() + within_seconds
    for child in children:
        child.end(within_seconds=max(0.0, end - time.monotonic()))
    end = time.monotonic() + OUTPUT_SECONDS
    for child in children:
        child.read_rest(within_seconds=max(0.0, end - time.monotonic()))


def kill_all() -> None:
    """For a second signal: end every child of this process at once. Raises KeyboardInterrupt."""
    for child in list(_running):
        child.kill()
    raise KeyboardInterrupt("interrupted again: its processes were killed, and what no checkpoint has is lost")


def command_of(program: str, arguments: Sequence[str] = ()) -> list[str]:
    """The words that start a program, a package or a module."""
    return [sys.executable, "-P", "-m", program, *arguments]  # -P: no imports from the working folder


def _started(
    program: str,
    arguments: Sequence[str],
    channel: int,
    streams: Mapping[str, IO[bytes] | int | None],
    further: Mapping[str, str],
) -> subprocess.Popen[bytes] | Fork:
    """
    The process, which reports into this channel: a fork of the fork server, if there is one.

    It asks the kernel itself to end with its parent (reasons.py): code between fork and exec can deadlock where the
    parent has threads.
    """
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **streams}
    # It finds the modules that this process finds, and speaks UTF-8.
    places = [*places_beside_installed(), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        **ONE_THREAD,
        LAUNCHED: f"{os.getpid()} {channel}",
    }
    environment = {**os.environ, **variables, **further}
    ends = (streams.get("stdout") or 1, streams.get("stdin"))
    descriptors = [end if isinstance(end, int) else end.fileno() for end in ends if end is not None]
    if process := fork(program, arguments, environment, channel, *descriptors):
        return process
    return subprocess.Popen(
        command_of(program, arguments),
        env=environment,
        pass_fds=[channel],
        start_new_session=True,  # the terminal sends Ctrl-C to the parent alone, which ends the run in order
        **how,
    )


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a signal without a name
        return f"killed by signal {-status}"
