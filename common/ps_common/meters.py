"""Numbers over time: means, rates, a limit and a schedule. `now` is seconds of any monotonic clock."""

from collections import OrderedDict, deque
from collections.abc import Hashable

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


class Rate:
    """The growth of a counter per second, over about the last `window_seconds`."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window_seconds = window_seconds
        self._marks: deque[tuple[float, float]] = deque()  # (now, counter), at most a few a second

    def mark(self, counter: float, *, now: float) -> None:
        """Record the counter's value; to be called at least once a second."""
        while self._marks and now - self._marks[0][0] > self._window_seconds:
            self._marks.popleft()
        self._marks.append((now, counter))

    def per_second(self, counter: float, *, now: float) -> float:
        """The rate from the oldest mark in the window to `counter` at `now`; 0 without one."""
        if not self._marks or now <= self._marks[0][0]:
            return 0.0
        then, before = self._marks[0]
        return (counter - before) / (now - then)


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
        """Whether it is as good as new: a whole burst may happen again."""
        return self._left_at(now) == self._at_once

    def _left_at(self, now: float) -> float:
        return min(self._at_once, self._left + (now - self._counted) * self._per_second)


class RateLimits:
    """A RateLimit for each of the latest so many: peers come without end. Those that are full again are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limits: OrderedDict[Hashable, RateLimit] = OrderedDict()  # the latest last

    def __len__(self) -> int:
        return len(self._limits)

    def allows(self, who: Hashable, *, at_once: int, per_second: float, now: float) -> bool:
        """As RateLimit, for this one."""
        limit = self._limits.pop(who, None) or RateLimit(at_once=at_once, per_second=per_second)
        self._limits[who] = limit
        allows = limit.allows(now=now)
        while len(self._limits) > self._most or self._earliest.is_full(now=now):
            self._limits.popitem(last=False)
        return allows

    @property
    def _earliest(self) -> RateLimit:
        return next(iter(self._limits.values()))


def linear(global_steps: int, *, initial: float, final: float, over: int, start: int = 0) -> float:
    """
    `initial` until T = `start`, a straight line to `final` at T = `over`, then `final`. `over` 0: always `initial`.
    """
    if over == 0:
        return initial
    if global_steps >= over:
        return final
    return initial + (final - initial) * (max(global_steps - start, 0) / (over - start)) if start < over else initial
