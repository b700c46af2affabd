"""Histograms of positive numbers in bounded memory, whose percentiles are right to two percent; Jain's index. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

SMALLEST = 1e-6  # a microsecond; smaller numbers count as this
GROWTH = 1.02  # from one bucket to the next

Histogram = Mapping[int, int]  # numbers by bucket


def bucket_of(number: float) -> int:
    """The bucket that a number belongs to."""
    return round(math.log(max(number, SMALLEST) / SMALLEST) / math.log(GROWTH))


def middle_of(bucket: int) -> float:
    """The number in the middle of a bucket."""
    return float(SMALLEST * GROWTH**bucket)


def joined(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all their numbers."""
    whole: Counter[int] = Counter()
    for one in histograms:
        whole.update(one)
    return whole


def percentile(histogram: Histogram, percent: float) -> int | None:
    """The lowest bucket that so many percent of the numbers do not exceed; None without numbers."""
    wanted, seen = percent / 100 * sum(histogram.values()), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return bucket
    return None


def jains_index(shares: Sequence[float]) -> float:
    """
    How equal the shares are: 1 if they are equal, 1/n if one of n has everything (Jain, Chiu and Hawe 1984).

    Without any share nobody has more than another: 1.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
