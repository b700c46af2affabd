"""Numbers over time: a mean, a limit and a schedule. `now` is seconds of any monotonic clock."""

from collections import deque

POWERS_OF_TEN = frozenset(10**power for power in range(16))  # of many alike, the log has the 1st, 10th, 100th, …


class RollingMean:
    """Mean of the newest `size` values; 0 before the first."""

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float) -> None:
        self._values.append(value)

    @property
    def mean(self) -> float:
        return sum(self._values) / len(self._values) if self._values else 0.0


class RateLimit:
    """A token bucket: an event may happen `at_once` times in a burst, and `per_second` times in the long run."""

    def __init__(self, *, at_once: int, per_second: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left = float(at_once)
        self._counted = 0.0  # when `_left` was computed

    def allows(self, *, now: float) -> bool:
        """Whether the event may happen now; if so, it is counted."""
        self._left = self._left_at(now)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def is_full(self, *, now: float) -> bool:
        """Whether a whole burst may happen again, as at the beginning."""
        return self._left_at(now) == self._at_once

    def _left_at(self, now: float) -> float:
        return min(self._at_once, self._left + (now - self._counted) * self._per_second)


def linear(global_steps: int, *, initial: float, final: float, over: int, start: int = 0) -> float:
    """
    `initial` until T = `start`, a straight line to `final` at T = `over`, then `final`. `over` 0: always `initial`.
    """
    if over == 0:
        return initial
    if global_steps >= over:
        return final
    return initial + (final - initial) * (max(global_steps - start, 0) / (over - start)) if start < over else initial
