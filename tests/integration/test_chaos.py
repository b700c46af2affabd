"""A short `make chaos`: real processes, killed behind a bad network, and every push counted."""

import pytest

from benchmarks.trials.chaos import trial


@pytest.mark.nightly
@pytest.mark.timeout(400)  # it takes half a minute on two idle cores
def test_no_count_is_lost_or_doubled() -> None:
    figures = trial(seed=5, kills=3, swarm=2)
    assert (figures["lost"], figures["doubled"]) == (0, 0), figures
    assert figures["acknowledged"] > 100
    assert figures["server_kills"] > 0, "another seed, please"
    assert figures["swarm_kills"] > 0, "another seed, please"
