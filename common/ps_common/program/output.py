"""
Output that cannot be written, since its reader has left or its disk is full or hangs, and lines of logs.

Standard output and standard error drop what they cannot write. Lost output never ends a program, nor leaves a
traceback. A character that the terminal's encoding lacks is written as its number. Lines of logs, and other work that
may block for ever, are written by a thread of their own, so that nobody waits.

Logs of many hosts are read side by side, weeks later, so each line of a log is complete without its file: it has the
date, the level and the writer's name.
"""

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, TextIO

from ps_common.meters import RateLimit

DATE = "%Y-%m-%d %H:%M:%S"
STDERR = 2  # its descriptor
MOST_WAITING_BYTES = 2**20  # of a log
END_SECONDS = 2.0  # for the last lines of a log when a program ends


class LogOfPeer:
    """Lines that one other program causes, at a limited rate, since that program may be hostile."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._limit = log, RateLimit(at_once=20, per_second=0.1)

    def warning(self, text: str, *values: object) -> None:
        """Log a line, unless there were too many."""
        if self._limit.allows(now=monotonic()):
            self._log.warning(text, *values)


class LenientStream:
    """A text stream whose writes never fail. Everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None  # of the last write that failed

    def write(self, text: str) -> int:
        self._lenient(partial(self._stream.write, text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._lenient(self._stream.flush)

    def _lenient(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except OSError as error:
            self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lenient_output(prog: str) -> Iterator[None]:
    """
    Standard output and standard error drop what they cannot write, in this block and after it, when the interpreter
    flushes them. At its end a line reports lost output, unless the reader has left, as `head` does.
    """
    sys.stdout, sys.stderr = _lenient(sys.stdout), _lenient(sys.stderr)
    try:
        yield
    finally:
        finish_output()
        error = sys.stdout.error if isinstance(sys.stdout, LenientStream) else None
        if error is not None and not isinstance(error, BrokenPipeError):
            print(f"{prog}: some of the output is lost: {error.strerror}", file=sys.stderr)


def reader_has_left() -> bool:
    """Whether nobody reads the standard output any more, as after `| head`: a program that only prints may end."""
    return isinstance(sys.stdout, LenientStream) and isinstance(sys.stdout.error, BrokenPipeError)


def finish_output() -> None:
    """Write the lines of logs that wait, as far as that takes no longer than END_SECONDS, and what is buffered."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, LenientStream):
            stream.flush()


def _lenient(stream: TextIO | None) -> Any:
    """None stays None: a program may be started without the stream."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace", line_buffering=True)
    return stream if stream is None or isinstance(stream, LenientStream) else LenientStream(stream)


def line_of_page(address: str, *, token_is: str) -> str:
    """
    The line on a page that is served at this address, which has its token. Without the token where standard output is a
    file or a log, which others may read: `token_is` names the place of the token in words.
    """
    return f"page: {address}" if sys.stdout.isatty() else f"page: {address.partition('?')[0]} (its token is {token_is})"


def log_as(writer: str) -> None:
    """Log everything of level INFO and above to standard error, as lines of `writer`."""
    handler = BackgroundLog()
    handler.setFormatter(line_format(writer))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def line_format(writer: str) -> logging.Formatter:
    """2026-01-31 23:59:59 WARNING worker-3: MESSAGE"""
    return logging.Formatter(f"%(asctime)s %(levelname)s {writer.replace('%', '%%')}: %(message)s", DATE)


log = logging.getLogger("ps-rl")


class WriterThread:
    """
    A queue of work that may block for ever, done in order by a thread of its own, so that no other thread waits.

    The queue has a bound. Beyond it new work is dropped and counted. The thread ends with the program, even inside of a
    piece of work.
    """

    def __init__(self, name: str, *, most: int) -> None:
        """`most`: the greatest size of all waiting work together."""
        self.dropped = 0
        self._most = most
        self._waiting = 0
        self._lock = threading.Lock()  # of `_waiting` and `dropped`
        self._work: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None], *, size: int = 1) -> bool:
        """Queue work, and return at once; False where the queue is full, and the work was dropped."""
        with self._lock:
            if self._waiting and self._waiting + size > self._most:
                self.dropped += 1
                return False
            self._waiting += size
        self._work.put((work, size))
        return True

    def close(self, *, within_seconds: float) -> bool:
        """Accept no more work. Returns whether all is done in time; if not, the thread continues."""
        self._work.put(None)
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, size = job
            try:
                work()
            except Exception:  # a bug in one piece of work must not lose the others
                log.exception("the thread %s continues after an error", self._thread.name)
            del job, work  # frees its memory
            with self._lock:
                self._waiting -= size


class BackgroundLog(logging.Handler):
    """
    Writes to standard error in a thread. The thread uses the descriptor: were it stuck with the lock of Python's
    buffer, the interpreter could not end.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        super().__init__()
        self._descriptor, self._pid = descriptor, os.getpid()
        self._is_stuck = False

    @cached_property
    def _writer(self) -> WriterThread:
        """From the first line on."""
        return WriterThread("log", most=MOST_WAITING_BYTES)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # the values do not fit the text
            self.handleError(record)
            return
        if os.getpid() == self._pid:
            self._writer.do(partial(self._write, line), size=len(line))
        else:  # a forked process has no such thread
            self._write(line)

    def flush(self) -> None:
        """Wait for the lines so far, but not again after that was in vain."""
        written = threading.Event()
        if os.getpid() == self._pid and not self._is_stuck and self._writer.do(written.set, size=0):
            self._is_stuck = not written.wait(END_SECONDS)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            while line:
                line = line[os.write(self._descriptor, line) :]
