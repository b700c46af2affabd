"""
When a trainer stands still: it has made no step for much longer than any of its steps ever took.

A step is whatever the trainer does between two calls of `moved`: one step of its environments, one gradient, one look
at an answer that it waits for. So slow environments, long checkpoints and recorded games are no standstill, but an
environment that hangs is. No thread or clock is known here; `now` is seconds of any monotonic clock.

The trainer's thread calls `moved`, and only that changes when it last moved; another thread calls the rest.
"""

from dataclasses import dataclass

TIMES_LONGER = 10  # than the longest step so far
FIRST_TIMES_LONGER = 10  # than the least time, before there was a first push: whatever is made or compiled at first
AWAY_SECONDS = 1.0  # between two looks of a thread that looks many times a second: the process was paused


@dataclass(frozen=True)
class Standstill:
    """For how long the trainer has made no step, and how long its longest one took before."""

    seconds: float
    longest_before: float


class StallWatch:
    """Of one trainer."""

    def __init__(self, least_seconds: float, *, now: float) -> None:
        """Less than `least_seconds` is never a standstill."""
        self._least_seconds = least_seconds
        self._has_pushed = False
        self._longest = 0.0  # step since the first push
        self._away = 0.0  # seconds, in all, in which the process did not run
        self._looked = now
        self._last_move = (now, 0.0)  # when, and how long the process had been away then; replaced as one

    def moved(self, *, now: float) -> None:
        """The trainer has made a step."""
        away = self._away + self._paused(now)
        if self._has_pushed:
            self._longest = max(self._longest, self._standing(now, away))
        self._last_move = (now, away)

    def look(self, *, has_pushed: bool, now: float) -> Standstill | None:
        """To be called many times a second. None: the trainer moves, or has not stood still for long enough."""
        self._away += self._paused(now)
        self._looked, self._has_pushed = now, has_pushed
        least = self._least_seconds if has_pushed else FIRST_TIMES_LONGER * self._least_seconds
        standing = self._standing(now, self._away)
        is_long = standing > max(least, TIMES_LONGER * self._longest)
        return Standstill(standing, self._longest) if is_long else None

    def _paused(self, now: float) -> float:
        """Seconds since the last look, if nobody can have been running in them."""
        return now - self._looked if now - self._looked > AWAY_SECONDS else 0.0

    def _standing(self, now: float, away: float) -> float:
        at, away_then = self._last_move
        return now - at - (away - away_then)
