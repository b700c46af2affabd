"""
Standard output and standard error that cannot be written: a pipe whose reader has left, or a full disk; and the thread
that writes where a disk or a reader may block for ever.

Such output is dropped and counted. It never ends a program, nor leaves a traceback. A character that the terminal's
encoding lacks is written as its number. A program that serves others does not wait for output either, say for a reader
that has stopped or a disk that hangs.

Logs of many hosts are read side by side, weeks later, so each line of a log is complete without its file: it has the
date, the level and the writer's name.
"""

import contextlib
import errno
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, TextIO

from ps_common.meters import RateLimit

DATE = "%Y-%m-%d %H:%M:%S"
MOST_WAITING_CHARACTERS = 2**20
END_SECONDS = 2.0  # for waiting output when a program ends


class LogOfPeer:
    """Lines that one other program causes, which may be hostile: a few at once, and six a minute in the long run."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._limit = log, RateLimit(at_once=20, per_second=0.1)

    def warning(self, text: str, *values: object) -> None:
        """Log a line, or leave it out."""
        if self._limit.allows(now=monotonic()):
            self._log.warning(text, *values)


class LenientStream:
    """A text stream whose writes never fail. Everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.dropped = 0  # writes that failed
        self.error: OSError | None = None  # why the last of them did
        self._writer: WriterThread | None = None  # once no thread waits for output
        self._descriptor = -1  # where that thread writes
        self._line = ""  # begun, and not written yet by that thread

    def write(self, text: str) -> int:
        if self._writer is None:
            self._lenient(partial(self._stream.write, text))
        elif not self._writer.do(partial(self._add, text), size=len(text)):
            self._is_stuck()
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._writer is None:
            self._lenient(self._stream.flush)
        else:
            self._writer.do(self._put, size=0)

    def never_wait(self, others: Sequence["LenientStream"] = ()) -> None:
        """
        From now on a thread writes, if the stream has a file descriptor: to the descriptor itself, since the
        interpreter could not end if the thread were stuck with the lock of one of Python's buffers.

        The thread is that of another stream to the same file, where there is one: lines keep their order.
        """
        if self._writer is None:
            self.flush()
            with contextlib.suppress(OSError):
                # A copy: if the thread is stuck, the number of the descriptor must not go to another file.
                self._descriptor = os.dup(self._stream.fileno())
                same = (one._writer for one in others if one._writer and self._writes_to_the_file_of(one))
                self._writer = next(same, None) or WriterThread("output", most=MOST_WAITING_CHARACTERS)

    def wait(self, *, within_seconds: float) -> None:
        """From now on the caller of `write` writes. Waiting output that cannot be written in time is dropped."""
        if self._writer is None:
            return
        self.flush()
        if self._writer.close(within_seconds=within_seconds):
            os.close(self._descriptor)
            self._writer = None
        else:  # the thread is stuck, stays, and drops further output
            self._is_stuck()

    def _writes_to_the_file_of(self, other: "LenientStream") -> bool:
        return os.path.sameopenfile(self._descriptor, other._descriptor)

    def _add(self, text: str) -> None:
        """`print` writes a line and its end one after the other; they go out together."""
        self._line += text
        if "\n" in text:
            self._put()

    def _put(self) -> None:
        data, self._line = self._line.encode(self._stream.encoding, errors="backslashreplace"), ""
        self._lenient(lambda: _write_all(self._descriptor, data))

    def _lenient(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except OSError as error:
            self.dropped += 1
            self.error = error

    def _is_stuck(self) -> None:
        self.dropped += 1
        self.error = TimeoutError(errno.ETIMEDOUT, "its reader does not take it")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


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
    """Write what waits to be written, as far as that takes no longer than END_SECONDS."""
    streams = _lenient_streams()
    for stream in streams:
        stream.flush()
    for stream in streams:  # only now: two streams may share the thread that ends here
        stream.wait(within_seconds=END_SECONDS)


def never_wait_for_output() -> None:
    """For programs that serve others: within `lenient_output` no thread of theirs waits for output."""
    streams = _lenient_streams()
    for number, stream in enumerate(streams):
        stream.never_wait(streams[:number])


def _lenient_streams() -> list[LenientStream]:
    return [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, LenientStream)]


def _lenient(stream: TextIO | None) -> Any:
    """None stays None: a program may be started without the stream."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream if stream is None or isinstance(stream, LenientStream) else LenientStream(stream)


def line_of_page(address: str, *, token_is: str) -> str:
    """
    The line on a page that is served at this address, which has its token. Without the token where standard output is a
    file or a log, which others may read: `token_is` says in words where it is then.
    """
    return f"page: {address}" if sys.stdout.isatty() else f"page: {address.partition('?')[0]} (its token is {token_is})"


def log_as(writer: str) -> None:
    """Log everything of level INFO and above to standard error, as lines of `writer`."""
    handler = logging.StreamHandler()
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
        """Queue work, and return at once. False: the queue is full, and this was dropped."""
        with self._lock:
            if self._waiting and self._waiting + size > self._most:
                self.dropped += 1
                return False
            self._waiting += size
        self._work.put((work, size))
        return True

    def close(self, *, within_seconds: float) -> bool:
        """Accept no more work. Returns whether all is done in time; if not, the thread goes on with it."""
        self._work.put(None)
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, size = job
            try:
                work()
            except Exception:  # a bug in one piece of work must not lose the others
                log.exception("the thread %s goes on after an error", self._thread.name)
            del job, work  # frees its memory
            with self._lock:
                self._waiting -= size
