"""A short `make fuzz`: a real server among liars, and two workers that count."""

import pytest

from benchmarks.trials.fuzz import MOST_GROWTH_MIB, trial


@pytest.mark.timeout(300)  # four seconds of lies, and two programs that import torch
def test_lies_cost_honest_workers_nothing() -> None:
    figures = trial(seed=3, messages=4000, rate=0)
    assert (figures["crashes"], figures["lost"], figures["leaked"]) == (0, 0, 0), figures
    assert figures["rss_growth_mib"] < MOST_GROWTH_MIB, figures
    assert figures["messages"] == 4000
    assert figures["malformed_connections"] == 40
    assert figures["refused"] > 100, "they did not lie much"
