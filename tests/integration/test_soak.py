"""A short `make soak`: workers join and leave all the time. The growth of memory takes a long one."""

import pytest

from benchmarks.trials.soak import trial


@pytest.mark.nightly
@pytest.mark.timeout(300)  # 12 seconds of churn, and programs that import torch
def test_workers_that_come_and_go_leave_no_descriptors() -> None:
    figures = trial(seed=2, minutes=0.2, workers=40, names=400)
    assert figures["leaked"] == 0, figures
    assert figures["joined"] > 40
    assert figures["killed_processes"] == 1
    assert figures["updates"] > 100
