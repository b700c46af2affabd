"""Small measures of a stream of numbers. `now` is passed in, in seconds of any monotonic clock."""

from collections import deque


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
