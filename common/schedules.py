"""Numbers that move with the global step counter T."""


def linear(global_steps: int, *, initial: float, final: float, over: int, start: int = 0) -> float:
    """
    `initial` until T = `start`, a straight line to `final` at T = `over`, then `final`. `over` 0: always `initial`.
    """
    if over == 0 or global_steps <= start < over:
        return initial
    if global_steps >= over:
        return final
    return initial + (final - initial) * ((global_steps - start) / (over - start))
