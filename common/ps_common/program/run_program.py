"""How a program runs its main function, and ends: exit status 0; 1 or, for what was typed, 2 with a sentence; 130."""

import atexit
import errno
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.output import finish_output, lenient_output
from ps_common.program.reasons import is_leaving_in_order, is_of_flags, reason_of, report_reason
from ps_common.program.resources import keep_freed_memory
from ps_common.program.stop_signals import Interrupted, ignore_stop_signals

# The errors of a disk that is read-only, full, broken, or somebody else's.
DISK_REFUSES = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EPERM}
NO_MEMORY = "can't allocate memory"  # in torch's RuntimeError
OF_FLAGS = 2  # the exit status where what was typed makes no sense, as shells have it
INTERRUPTED = 130  # the exit status after Ctrl-C, as shells have it
THREADS_SECONDS = 1.0  # for the threads of a user's code when the main thread ends; rl-cluster sends SIGTERM after two
EXIT_SECONDS = 5.0  # for an atexit function or a child process, where no thread is left


class ProgramEnd(SystemExit):
    """The program ends with this status."""

    def __init__(self, status: int, prog: str) -> None:
        super().__init__(status)
        self.prog = prog


def run_program(main: Any, prog: str) -> NoReturn:
    """
    Call a program's main. An error that the user can mend becomes one sentence, and exit status 1; 2 if it lies in what
    was typed.

    The program reports to its parent how it ends (reasons.py). Raises ProgramEnd.
    """
    _imports_are_over()  # common/ps_common/program/start.py has disabled the garbage collector
    keep_freed_memory()
    atexit.register(ignore_stop_signals)
    with lenient_output(prog):
        status = _status(main, prog)
    raise ProgramEnd(status, prog)


def _status(main: Any, prog: str) -> int:
    """The exit status of the program; what is a fault of ours or of a user's code leaves a traceback."""
    try:
        status = main() or 0
        if not is_leaving_in_order():
            report_reason("failed" if status else "left", f"exit status {status}" if status else "")
        return int(status)
    except PsRlError as error:
        how: Literal["failed", "refused"] = "refused" if error.is_final else "failed"
        return _failed(prog, str(error), how=how, status=OF_FLAGS if isinstance(error, SettingsError) else 1)
    except SystemExit as error:
        if not is_of_flags(error):
            return _failed(prog, reason_of(error))
        status = int(error.code or 0)
        report_reason("failed" if status else "left", f"its flags were refused: exit status {status}" if status else "")
        return status
    except Interrupted:  # the program has not begun yet, or has ended already
        if not is_leaving_in_order():
            report_reason("left", "asked to leave")
        return 0
    except KeyboardInterrupt as error:
        report_reason("failed", reason_of(error))
        if str(error):
            print(f"{prog}: {error}", file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_MEMORY in str(error)):
            return _failed(prog, f"there is not enough memory for these settings: {error}")
        if isinstance(error, OSError) and error.errno in DISK_REFUSES and error.filename is not None:
            return _failed(prog, f"{error.filename}: cannot be written or read: {error.strerror}")
        report_reason("failed", reason_of(error))
        finish_output()
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


def _failed(prog: str, why: str, *, how: Literal["failed", "refused"] = "failed", status: int = 1) -> int:
    report_reason(how, " ".join(why.split()))
    finish_output()
    print(f"{prog}: {why}", file=sys.stderr)
    return status


@contextmanager
def bounded(what: str, prog: str, *, seconds: float) -> Iterator[None]:
    """
    The process ends when a user's code in this block takes longer than that: of the error that is on its way to
    `run_program`, if there is one, and with everything that was printed and logged.
    """
    error = sys.exception()

    def main() -> None:
        if error is not None:
            raise error

    def end() -> None:
        finish_output()
        print(f"{what} has not returned within {seconds:g} s; the process ends without it", file=sys.stderr)
        status = _status(main, prog)
        finish_output()
        os._exit(status)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_in_time(end: ProgramEnd) -> None:
    """
    The process ends soon after the main thread, whatever a user's code has left running. Python waits for threads that
    are not daemons and for child processes of `multiprocessing`, and calls what was registered with atexit.
    """
    status = int(end.code or 0)
    threading.Thread(target=_end_after_main, args=(status, end.prog), name="end", daemon=True).start()


def _end_after_main(status: int, prog: str) -> None:
    """The thread."""
    main = threading.main_thread()
    main.join()
    threading.Event().wait(THREADS_SECONDS)
    if not any(thread is not main and not thread.daemon for thread in threading.enumerate()):
        threading.Event().wait(EXIT_SECONDS - THREADS_SECONDS)
    why = "a thread, an atexit function or a child process has not ended in time"
    print(f"{prog}: ends though {why}", file=sys.stderr, flush=True)
    os._exit(status)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Have imports in this block take less time, without the garbage collector."""
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        _imports_are_over(any_new=len(sys.modules) > known)


def _imports_are_over(*, any_new: bool = True) -> None:
    # Imported objects are never garbage, and torch's 180,000 would stop a server for 0.1 s in each full collection.
    if any_new:
        gc.freeze()
    gc.enable()
