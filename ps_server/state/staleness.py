"""
Staleness: the number of updates between the weights that a gradient was computed on and those it is applied to.

A rule damps the learning rate of a stale gradient, or discards the gradient.
"""

from collections.abc import Callable

from common.settings.run_spec import Staleness
from ps_server.state.guards import Denied


def damping(staleness: int, settings: Staleness) -> float:
    """The factor on the learning rate of a gradient this many versions late. Raises Denied for one to discard."""
    return STALENESS_RULES[settings.rule](staleness, settings)


def undamped(staleness: int, settings: Staleness) -> float:
    """Every gradient counts the same: Mnih et al. 2016."""
    return 1.0


def bounded(staleness: int, settings: Staleness) -> float:
    """Full weight up to `max_staleness`, nothing beyond."""
    if staleness > settings.max_staleness:
        raise Denied("too_stale", f"the gradient is {staleness} versions late; up to {settings.max_staleness} count")
    return 1.0


STALENESS_RULES: dict[str, Callable[[int, Staleness], float]] = {
    "undamped": undamped,
    "bounded": bounded,
}
