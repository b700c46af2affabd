"""A short `make partition`: hosts cut off, and counting workers on them."""

import os
import shutil
import subprocess

import pytest

from benchmarks.trials.partition import trial


@pytest.mark.nightly
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and the program `ip`"
)
@pytest.mark.timeout(400)  # five programs that import torch, and three events of some seconds
def test_no_count_is_lost_on_hosts_that_are_cut_off() -> None:
    try:
        figures = trial(seed=379, events=3, swarm=2)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode()}")
    assert (figures["lost"], figures["doubled"]) == (0, 0), figures
    assert figures["acknowledged"] > 100
    assert figures["promoted"] == 0
    assert figures.keys() >= {"kill_server", "vanish", "split"}, "another seed, please"
