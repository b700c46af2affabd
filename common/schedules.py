"""Numbers that move with the global step counter T."""


def linear(global_steps: int, *, initial: float, final: float, over: int) -> float:
    """A straight line from `initial` at T = 0 to `final` at T = `over`, then `final`. `over` 0: always `initial`."""
    if over == 0:
        return initial
    return initial + (final - initial) * min(global_steps / over, 1.0)
