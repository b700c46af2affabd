"""Numbers that move with the global step counter T."""


def linear(global_steps: int, *, initial: float, final: float, over: int, start: int = 0) -> float:
    """
    `initial` until T = `start`, a straight line to `final` at T = `over`, then `final`. `over` 0: always `initial`.
    """
    if over == 0:
        return initial
    if global_steps >= over:
        return final
    return initial + (final - initial) * (max(global_steps - start, 0) / (over - start)) if start < over else initial
