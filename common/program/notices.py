"""
Notices that this machine is about to go: a file that appears, or a command that succeeds. Either asks the program to
leave in order, as SIGTERM does.

A notice that is there already when the program starts counts, too: nothing new should begin on such a machine.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import SettingsError

FILE_SECONDS = 0.5  # between two looks at the file
COMMAND_SECONDS = 5.0  # between two runs of the command
LONGEST_SECONDS = 10.0  # for the command
NOT_FOUND = (126, 127)  # exit statuses of a shell that cannot run a command

log = logging.getLogger("notices")


@dataclass(frozen=True, kw_only=True)
class NoticeFlags:
    """The flags of a program that leaves in order when its machine is about to go."""

    notice_file: Path | None = None
    """leave in order, as on SIGTERM, when this file is there"""
    notice_command: str | None = None
    """leave in order, as on SIGTERM, when this shell command succeeds; it is run every 5 seconds, for example `curl -sf
    http://169.254.169.254/latest/meta-data/spot/instance-action`"""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """SIGTERM comes to this process once there is a notice. Raises SettingsError when the command cannot be run."""
        if self.notice_command is not None and not self.notice_command.strip():
            raise SettingsError("--notice-command: is empty, which a shell calls a success; name a command")
        notices = Notices(self.notice_file, self.notice_command)
        notices.look(is_first=True)
        thread = threading.Thread(target=notices.watch, name="notices", daemon=True)
        if self.notice_file is not None or self.notice_command is not None:
            thread.start()
        try:
            yield
        finally:
            notices.closing.set()
            if thread.ident is not None:
                thread.join()


class Notices:
    """Looks for a notice, until there is one or `closing` is set."""

    def __init__(self, file: Path | None, command: str | None) -> None:
        self.closing = threading.Event()
        self._file = file
        self._command = command
        self._looks = 0
        self._has_warned = False

    def watch(self) -> None:
        """The thread."""
        while not self.closing.wait(FILE_SECONDS):
            if self.look():
                return

    def look(self, *, is_first: bool = False) -> bool:
        """Whether there is a notice; then SIGTERM was sent. The command runs only now and then."""
        notice = ""
        if self._file is not None and self._file.exists():
            notice = f"--notice-file {self._file} is there"
        elif self._command is not None and self._looks % round(COMMAND_SECONDS / FILE_SECONDS) == 0:
            status = self._run(self._command)
            if is_first and status in NOT_FOUND:
                raise SettingsError(f"--notice-command {self._command!r}: the shell cannot run it (status {status})")
            notice = f"--notice-command {self._command!r} succeeded" if status == 0 else ""
        self._looks += 1
        if notice:
            log.warning("%s: leaving in order", notice)
            # To the main thread: it may wait in a call that only its own signal interrupts.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return bool(notice)

    def _run(self, command: str) -> int | None:
        """The exit status; None when it took too long or the program ends."""
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, shell=True, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            return process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            if not self._has_warned:
                self._has_warned = True
                log.warning("--notice-command %r takes more than %g s: that is no notice", command, LONGEST_SECONDS)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):  # children of the shell, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
