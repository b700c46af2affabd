"""A token bucket: an event may happen `at_once` times in a burst, and `per_second` times in the long run."""


class RateLimit:
    """`now` is seconds of any monotonic clock."""

    def __init__(self, *, at_once: int, per_second: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left = float(at_once)
        self._counted = 0.0  # when `_left` was computed

    def allows(self, *, now: float) -> bool:
        """Whether the event may happen now; if so, it is counted."""
        self._left = min(self._at_once, self._left + (now - self._counted) * self._per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
