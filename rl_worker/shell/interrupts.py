"""
Ctrl-C, SIGTERM and a lost terminal, as an exception in the trainer's thread: between any two of its steps, but never in
the midst of what must be whole, such as a message of several frames.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from common.program.stop_signals import on_stop_signals


class Interrupted(BaseException):
    """A signal asks us to leave. Not an Exception: nothing on the way out may swallow it."""


class Interrupts:
    """Of one process. All but the signals themselves comes from its main thread."""

    def __init__(self) -> None:
        self._postponed = 0  # how often one is in what must be whole
        self._came = False  # meanwhile

    def listen(self) -> None:
        """From now on signals are raised."""
        on_stop_signals(self._handle)

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """A signal that comes inside is raised at the end."""
        self._postponed += 1
        try:
            yield
        finally:
            self._postponed -= 1
        if self._came and not self._postponed:
            self._came = False
            raise Interrupted

    def _handle(self, *_: object) -> None:
        if self._postponed:
            self._came = True
        else:
            raise Interrupted
