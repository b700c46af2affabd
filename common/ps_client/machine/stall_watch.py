"""
Stall detection: a trainer is stalled when a step takes much longer than any of its steps before.

A step is whatever the trainer does between two calls of `progressed`: one step of its environments, one gradient, one
poll while it waits for a reply. So slow environments, long checkpoints and recorded games are no stall, but an
environment that hangs is. Pure: `now` is seconds of any monotonic clock.

The trainer's thread calls `progressed`, the only writer of `_last_progress`. Another thread calls `check`.
"""

from dataclasses import dataclass

TIMES_LONGER = 10  # than the longest step so far
FIRST_TIMES_LONGER = 10  # than the least time, before the first push: compiling and building take long
PAUSE_SECONDS = 1.0  # between two checks, which come many times a second: the process was paused


@dataclass(frozen=True)
class Stall:
    """Seconds since the trainer's last step, and the longest step before."""

    seconds: float
    longest_before: float


class StallWatch:
    """Watches one trainer."""

    def __init__(self, least_seconds: float, *, now: float) -> None:
        """A step of less than `least_seconds` is never a stall."""
        self._least_seconds = least_seconds
        self._has_pushed = False
        self._longest = 0.0  # step since the first push
        self._paused = 0.0  # seconds, in all, in which the process did not run
        self._checked = now
        self._last_progress = (now, 0.0)  # when, and `_paused` at that time; replaced as one

    def progressed(self, *, now: float) -> None:
        """The trainer has made a step."""
        paused = self._paused + self._pause_until(now)
        if self._has_pushed:
            self._longest = max(self._longest, self._step_seconds(now, paused))
        self._last_progress = (now, paused)

    def check(self, *, has_pushed: bool, now: float) -> Stall | None:
        """The stall, if there is one. To be called many times a second."""
        self._paused += self._pause_until(now)
        self._checked, self._has_pushed = now, has_pushed
        least = self._least_seconds if has_pushed else FIRST_TIMES_LONGER * self._least_seconds
        seconds = self._step_seconds(now, self._paused)
        return Stall(seconds, self._longest) if seconds > max(least, TIMES_LONGER * self._longest) else None

    def _pause_until(self, now: float) -> float:
        """Seconds since the last check, if they are so many that the process cannot have run; else 0."""
        return now - self._checked if now - self._checked > PAUSE_SECONDS else 0.0

    def _step_seconds(self, now: float, paused: float) -> float:
        """How long the present step has taken, pauses left out."""
        began, paused_then = self._last_progress
        return now - began - (paused - paused_then)
