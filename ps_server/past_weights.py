"""
The newest versions of the weights, kept so that a late gradient can be mended for what has changed since.

Delay compensation (Zheng et al. 2017, "Asynchronous Stochastic Gradient Descent with Delay Compensation", equation 10):
the gradient at the newest weights w is about  g + λ g ⊙ g ⊙ (w − w₀)  where g was computed on w₀.
"""

from collections import deque

from torch import Tensor

VERSIONS_KEPT = 16  # each as large as the weights; a gradient that is later is mended as if it were this late


class PastWeights:
    """The weights [W] of the newest versions of one epoch."""

    def __init__(self) -> None:
        self._kept: deque[Tensor] = deque(maxlen=VERSIONS_KEPT)  # oldest first

    def keep(self, weights: Tensor) -> None:
        """Those of the next version; they are copied."""
        self._kept.append(weights.clone())

    def compensated(self, gradient: Tensor, *, staleness: int, strength: float) -> Tensor:
        """A gradient [W] that is so many versions late, as it would be at the newest weights; a new tensor."""
        now, then = self._kept[-1], self._kept[-1 - min(staleness, len(self._kept) - 1)]
        return gradient.addcmul(gradient.square(), now - then, value=strength)
