"""How often something may happen: so many times at once, and so many a second in the long run (a token bucket)."""


class RateLimit:
    """`now` is seconds of any monotonic clock."""

    def __init__(self, *, at_once: int, per_second: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left = float(at_once)
        self._counted = 0.0  # when `left` was right

    def allows(self, *, now: float) -> bool:
        """Whether it may happen now; then it has."""
        self._left = min(self._at_once, self._left + (now - self._counted) * self._per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
