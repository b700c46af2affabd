"""A short `make torn`: weights that are all equal, pushed and pulled at the same time."""

import pytest

from benchmarks.trials.torn import PULLERS, SIZE, trial


@pytest.mark.timeout(300)  # six programs that import torch
def test_every_pull_is_of_one_version_and_whole() -> None:
    figures = trial(pulls=3000, size=SIZE, kills=1)
    assert (figures["torn"], figures["backwards"]) == (0, 0), figures
    assert figures["pulled"] >= 3000 - PULLERS
    assert figures["versions"] >= 50, "the pullers met few updates"
    assert figures["targets"] > 500
