"""
A clock that stands still while its process does not run: stopped by SIGSTOP, frozen with its container, or asleep with
its machine.

A process that was paused has read and sent nothing meanwhile. So no silence of others, no deadline and no minute of
training may count that time. A lease at another process ran out all the same: `on_pause` is for that.
"""

import time
from collections.abc import Callable

# Whoever reads the clock does so several times a second. More than this between two readings is a pause, and counts as
# this.
MOST_SECONDS = 0.5


# A clock that also runs while the machine is suspended, where the system has one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _real_seconds() -> float:
    return time.clock_gettime(_CLOCK)


class RunningClock:
    """
    One thread at a time reads it. It begins with the seconds of `time.monotonic()`.

    A reading calls `on_pause` first, with the seconds that it leaves out and its result.
    """

    def __init__(self, real_seconds: Callable[[], float] = _real_seconds) -> None:
        self.on_pause: Callable[[float, float], None] = lambda seconds, now: None
        self._real_seconds = real_seconds
        self._read = real_seconds()
        self._now = time.monotonic()

    def now(self) -> float:
        """Seconds of this clock."""
        before, self._read = self._read, self._real_seconds()
        passed = self._read - before
        self._now += min(passed, MOST_SECONDS)
        if passed > MOST_SECONDS:
            self.on_pause(passed - MOST_SECONDS, self._now)
        return self._now
