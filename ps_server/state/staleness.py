"""
Staleness: the number of updates between the weights that a gradient was computed on and those it is applied to.

A rule lets a stale gradient pass, or discards it.
"""

from collections.abc import Callable

from common.settings.run_spec import Staleness
from ps_server.state.guards import Denied


def check_staleness(staleness: int, settings: Staleness) -> None:
    """Raises Denied for a gradient so many versions late that the run's rule discards it."""
    STALENESS_RULES[settings.rule](staleness, settings)


def undamped(staleness: int, settings: Staleness) -> None:
    """Every gradient counts the same: Mnih et al. 2016."""


def bounded(staleness: int, settings: Staleness) -> None:
    """Nothing beyond `max_staleness` counts."""
    if staleness > settings.max_staleness:
        raise Denied("too_stale", f"the gradient is {staleness} versions late; up to {settings.max_staleness} count")


STALENESS_RULES: dict[str, Callable[[int, Staleness], None]] = {
    "undamped": undamped,
    "bounded": bounded,
}
