"""A short `make chaos`: real processes, killed behind a bad network, and every push counted."""

import pytest

from benchmarks.trials.chaos import trial

COUNTS = ("lost", "doubled", "steps_lost", "steps_doubled", "steps_apart", "left_badly")


@pytest.mark.nightly
@pytest.mark.timeout(400)  # it takes half a minute on two idle cores
def test_no_count_is_lost_or_doubled() -> None:
    """Of pushes with a gradient and of steps alone, while a server and workers are killed and asked to leave."""
    figures = trial(seed=5, kills=3, swarm=2)
    assert {figures[name] for name in COUNTS} == {0}, figures
    assert figures["acknowledged"] > 100
    assert figures["steps_acknowledged"] > figures["acknowledged"]
    assert {figures[f"{kind}_kills"] for kind in ("server", "swarm", "asked")} == {1}


def test_no_count_of_a_process_of_a_gang_is_lost_or_doubled() -> None:
    """A server and a gang are killed."""
    figures = trial(seed=1, kills=2, swarm=2, gang=2)
    assert {name: figures[name] for name in ("lost", "doubled", "steps_apart", "means_apart")} == {
        "lost": 0, "doubled": 0, "steps_apart": 0, "means_apart": 0
    }, figures  # fmt: skip
    assert {figures[f"{kind}_kills"] for kind in ("server", "swarm")} == {1}
    assert figures["of_members"] > 50, figures
