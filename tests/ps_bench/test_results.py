import random

import pytest

from ps_bench.processes import Counts, Report
from ps_bench.results import bucket_of, jains_index, middle_of, percentile, pushing_of
from tests.rows import row


def test_percentiles_are_right_to_two_percent() -> None:
    for percent in [1, 50, 90, 99, 100]:
        with row(percent):
            drawn = random.Random(1)
            numbers = sorted(drawn.lognormvariate(-5, 2) for _ in range(5000))
            histogram: dict[int, int] = {}
            for number in numbers:
                histogram[bucket_of(number)] = histogram.get(bucket_of(number), 0) + 1
            bucket = percentile(histogram, percent)
            assert bucket is not None
            assert middle_of(bucket) == pytest.approx(numbers[percent * 50 - 1], rel=0.02)


def test_histograms_of_many_processes_are_one() -> None:
    def pushed(staleness: dict[int, int], settled: tuple[int, ...]) -> Report:
        return Report(began=0.0, seconds=2.0, counts=Counts(staleness=staleness, discarded=1), settled=settled, lost=0)

    fields = pushing_of([pushed({3: 1, 4: 2}, (3,)), pushed({4: 5}, (5,)), pushed({}, (0,))], vector_bytes=10)
    assert (fields["staleness_mean"], fields["staleness_p99"], fields["pushes"]) == (31 / 8, 4.0, 8)
    assert (fields["pushes_per_second"], fields["bytes_per_second"], fields["discarded"]) == (4.0, 40.0, 3)
    assert percentile({}, 50) is None


def test_jains_index_is_that_of_the_paper() -> None:
    for shares, index in [([7, 7, 7, 7], 1.0), ([5, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], 1.0), ([2], 1.0)]:
        with row(shares, index):
            assert jains_index(shares) == pytest.approx(index)
