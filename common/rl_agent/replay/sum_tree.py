"""Numbers that are drawn in proportion to their size: a binary tree of sums (Schaul et al. 2016, appendix B.2.1)."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]


class SumTree:
    """`size` numbers of at least 0, all 0 at first. Setting and drawing n of them costs O(n log size)."""

    def __init__(self, size: int) -> None:
        self._depth = max(0, (size - 1).bit_length())
        self._first = 1 << self._depth  # the node of row 0; the children of node i are 2i and 2i + 1
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._sums[1])

    def of(self, rows: Rows) -> Numbers:
        """The numbers of these rows."""
        found: Numbers = self._sums[rows + self._first]
        return found

    def set(self, rows: Rows, numbers: Numbers | float) -> None:
        """Set the numbers of these rows. Of a row that is named twice the last number counts."""
        nodes = rows + self._first
        self._sums[nodes] = numbers
        for _ in range(self._depth):
            nodes = np.unique(nodes >> 1)
            # A parent is computed from its children each time, so that rounding errors do not add up.
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def draw(self, count: int, random: np.random.Generator) -> Rows:
        """`count` rows, each with a probability in proportion to its number. The total is greater than 0."""
        left = random.random(count) * self.total
        nodes = np.ones(count, np.int64)
        for _ in range(self._depth):
            nodes *= 2
            before = self._sums[nodes]
            # Rounding may leave more than there is on the right, where everything may be 0.
            goes_right = (left >= before) & (self._sums[nodes + 1] > 0)
            left = np.where(goes_right, left - before, left)
            nodes += goes_right
        return nodes - self._first
