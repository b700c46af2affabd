"""
Staleness: the number of updates between the weights that a gradient was computed on and those it is applied to.

A rule damps the learning rate of a stale gradient, or discards the gradient. Delay compensation instead corrects the
gradient itself, for which the newest versions of the weights are kept (Zheng et al. 2017, "Asynchronous Stochastic
Gradient Descent with Delay Compensation", equation 10): a gradient g computed on w₀ is, at the newest weights w, about

    g + λ g ⊙ g ⊙ (w − w₀)
"""

from collections import deque
from collections.abc import Callable

from torch import Tensor

from common.settings.run_spec import Staleness
from ps_server.state.guards import Denied


def damping(staleness: int, settings: Staleness) -> float:
    """The factor on the learning rate of a gradient this many versions late. Raises Denied for one to discard."""
    return STALENESS_RULES[settings.rule](staleness, settings)


def undamped(staleness: int, settings: Staleness) -> float:
    """Every gradient counts the same: Mnih et al. 2016."""
    return 1.0


def delay_compensated(staleness: int, settings: Staleness) -> float:
    """Full weight: PastWeights has corrected the gradient itself."""
    return 1.0


def inverse(staleness: int, settings: Staleness) -> float:
    """Learning rate over staleness: Zhang et al. 2016, "Staleness-aware async-SGD", equation 7."""
    return 1.0 / max(1, staleness)


def bounded(staleness: int, settings: Staleness) -> float:
    """Full weight up to `max_staleness`, nothing beyond."""
    if staleness > settings.max_staleness:
        raise Denied("too_stale", f"the gradient is {staleness} versions late; up to {settings.max_staleness} count")
    return 1.0


STALENESS_RULES: dict[str, Callable[[int, Staleness], float]] = {
    "undamped": undamped,
    "inverse": inverse,
    "bounded": bounded,
    "delay_compensated": delay_compensated,
}


VERSIONS_KEPT = 16  # each as large as the weights; a gradient that is later is corrected as if it were this late


class PastWeights:
    """The weights [W] of the newest versions of one epoch."""

    def __init__(self) -> None:
        self._kept: deque[Tensor] = deque(maxlen=VERSIONS_KEPT)  # oldest first

    def keep(self, weights: Tensor) -> None:
        """Keep a copy of the next version."""
        self._kept.append(weights.clone())

    def compensated(self, gradient: Tensor, *, staleness: int, strength: float) -> Tensor:
        """A gradient [W] this many versions late, corrected to the newest weights; a new tensor."""
        now, then = self._kept[-1], self._kept[-1 - min(staleness, len(self._kept) - 1)]
        return gradient.addcmul(gradient.square(), now - then, value=strength)
