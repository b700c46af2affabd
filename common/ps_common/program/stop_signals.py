"""
Signals that ask a program to leave in order: SIGTERM, Ctrl-C, a lost terminal (SIGHUP), and SIGUSR1, which Slurm sends
ahead of the time limit (`--signal=USR1@50`). The first one counts. Further ones change nothing, except in programs
that supervise others: there the second one ends all at once.

A program polls, or has Interrupted raised in its main thread: between any two steps, but never inside of what must be
whole, such as a message of several frames.

A signal that was ignored when the program started stays ignored, and children inherit that: `nohup` ignores SIGHUP, and
a shell ignores SIGINT for its background jobs. SIGTERM always counts, since no launcher ignores it.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ps_common.program.reasons import report_reason

IGNORABLE = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
# In which a server leaves. It writes a last checkpoint: less than a second, or a minute on a bad disk. Whoever ends a
# server waits as long before a SIGKILL, and so do the engines of docker/ and deploy/.
LAST_CHECKPOINT_SECONDS = 90.0
SAME_SECONDS = 0.5  # signals so close to the first are not a second request: a closed terminal sends SIGHUP twice


class Interrupted(BaseException):
    """A signal asks this program to leave. It is not an Exception, so that no handler on the way out swallows it."""


class StopSignal:
    """Whether a stop signal came since this was made. All methods belong to the main thread."""

    def __init__(
        self, *, raises: bool = False, second: Callable[[], None] = lambda: None, listens: bool = True
    ) -> None:
        """
        `raises`: the first signal raises Interrupted too. `second` is called by each further one. Without `listens` no
        handlers are installed: the process is another program's.
        """
        self._raises = raises
        self._second = second
        self._came = False
        self._came_at = 0.0
        self._to_raise = False  # Interrupted is due, inside of `postponed`
        self._postponed = 0  # depth of nested `postponed`
        self._grace_seconds = 0.0  # inside of `grace`
        self._grace: threading.Timer | None = None  # since a signal came there
        self._is_overdue = False  # the grace period is over
        for number in stop_signals() if listens else ():
            signal.signal(number, self._handle)

    def is_set(self) -> bool:
        return self._came

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Interrupted is raised at the end of this block, instead of inside."""
        self._postponed += 1
        try:
            yield
        finally:
            self._postponed -= 1
        if self._to_raise and not self._postponed:
            self._to_raise = False
            raise Interrupted

    @contextmanager
    def grace(self, seconds: float) -> Iterator[None]:
        """A signal leaves this block `seconds` to end by itself before Interrupted is raised."""
        self._grace_seconds = seconds
        try:
            yield
        finally:
            self._grace_seconds = 0.0
            if self._grace is not None:
                self._grace.cancel()
                self._grace.join()
                self._is_overdue = False

    def _handle(self, *_: object) -> None:
        is_first, self._came = not self._came, True
        if is_first:
            self._came_at = time.monotonic()
        elif time.monotonic() - self._came_at > SAME_SECONDS:
            self._second()
        if is_first and self._grace_seconds:
            self._grace = threading.Timer(self._grace_seconds, self._grace_is_over)
            self._grace.start()
        elif (is_first and self._raises) or self._is_overdue:
            self._is_overdue = False
            self._raise()

    def _grace_is_over(self) -> None:
        """Have Interrupted raised in the main thread. The timer's thread calls it."""
        self._is_overdue = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _raise(self) -> None:
        if self._postponed:
            self._to_raise = True
        else:
            raise Interrupted


def stop_signals() -> list[int]:
    """The numbers of those that ask this program to leave."""
    return [signal.SIGTERM, *(one for one in IGNORABLE if signal.getsignal(one) is not signal.SIG_IGN)]


def leave_at_once() -> None:
    """Have SIGTERM and SIGUSR1 end the program with status 0 until a StopSignal is made: it has done nothing yet."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def _leave(*_: object) -> None:
    report_reason("left", "asked to leave before it began")
    os._exit(0)


def ignore_stop_signals() -> None:
    """
    From here on a stop signal changes nothing: the program is on its way out, with the status of its main.

    An interpreter that ends restores the default action of every signal that has a handler, before it takes its modules
    apart: a SIGTERM at that moment would end the program with status -15.
    """
    for number in (signal.SIGTERM, *IGNORABLE):
        signal.signal(number, signal.SIG_IGN)
