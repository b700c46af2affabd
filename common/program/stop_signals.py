"""
Which signals ask a program to leave in order: Ctrl-C, SIGTERM and a lost terminal (SIGHUP).

A signal that was ignored when the program started stays ignored: `nohup` ignores SIGHUP, and a shell ignores SIGINT for
what it starts in the background. Children inherit that. SIGTERM always counts: nobody ignores it for another program.
"""

import signal
from collections.abc import Callable

IGNORABLE = (signal.SIGINT, signal.SIGHUP)


def on_stop_signals(handler: Callable[..., None]) -> None:
    """Call `handler` for each of these signals from now on, in the main thread."""
    for number in (signal.SIGTERM, *IGNORABLE):
        if number not in IGNORABLE or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


class StopSignal:
    """Whether a signal has come since this was made."""

    def __init__(self) -> None:
        self._came = False
        on_stop_signals(self._handle)

    def is_set(self) -> bool:
        return self._came

    def _handle(self, *_: object) -> None:
        self._came = True
