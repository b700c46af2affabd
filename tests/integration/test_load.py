"""Synthetic workers against a real server."""

import pytest

from benchmarks.load.__main__ import Flags, jains_index, trial
from ps_common.errors import SettingsError
from tests.integration.processes import Programs
from tests.rows import row


@pytest.mark.nightly
def test_many_workers_join_a_server_without_a_run_and_are_served_equally() -> None:
    figures, broken = trial(Flags(workers=200, seconds=3, parameters=2000))
    del broken["fairness is at least 0.95"]  # on a machine that does nothing else
    assert not any(broken.values()), broken
    assert figures["fairness"] >= 0.8
    assert figures["pushes"] >= figures["workers"] == 200


@pytest.mark.nightly
def test_a_run_that_is_no_load_test_is_refused(programs: Programs) -> None:
    _, endpoint = programs.start_server("--preset", "cartpole")
    with pytest.raises(SettingsError, match=f"--server {endpoint}: trains cartpole"):
        trial(Flags(server=endpoint, workers=1))


def test_jains_index_is_that_of_the_paper() -> None:
    for shares, index in [([7, 7, 7, 7], 1.0), ([5, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], 1.0), ([2], 1.0)]:
        with row(shares, index):
            assert jains_index(shares) == pytest.approx(index)
