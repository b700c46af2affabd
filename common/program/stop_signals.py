"""
Signals that ask a program to leave in order: Ctrl-C, SIGTERM and a lost terminal (SIGHUP).

A program polls, or has Interrupted raised in its main thread: between any two steps, but never inside of what must be
whole, such as a message of several frames.

A signal that was ignored when the program started stays ignored, and children inherit that: `nohup` ignores SIGHUP, and
a shell ignores SIGINT for its background jobs. SIGTERM always counts, since no launcher ignores it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

IGNORABLE = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Interrupted(BaseException):
    """A signal asks this program to leave. Not an Exception: no handler on the way out may swallow it."""


class StopSignal:
    """Whether a stop signal came since this was made. All methods belong to the main thread."""

    def __init__(self, *, raises: bool = False) -> None:
        """`raises`: each signal raises Interrupted too."""
        self._raises = raises
        self._came = False
        self._to_raise = False  # a signal came inside of `postponed`
        self._postponed = 0  # depth of nested `postponed`
        for number in (signal.SIGTERM, *IGNORABLE):
            if number not in IGNORABLE or signal.getsignal(number) is not signal.SIG_IGN:
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

    def _handle(self, *_: object) -> None:
        self._came = True
        if self._postponed:
            self._to_raise = self._raises
        elif self._raises:
            raise Interrupted
