"""How a worker joins a run, as far as that needs no server."""

import itertools

from rl_agent.random_numbers import derived_seed

MOST_ENVIRONMENTS = 4096


def test_no_two_workers_of_neighbouring_runs_share_the_seed_of_an_environment() -> None:
    firsts = sorted(derived_seed(run, number) for run in range(10) for number in range(64))
    apart = [later - first for first, later in itertools.pairwise(firsts)]
    assert min(apart) > 0
    assert sum(distance < MOST_ENVIRONMENTS for distance in apart) <= 3, "640 of 2**30 by chance"


def test_a_seed_fits_the_31_bits_of_ale_and_does_not_change() -> None:
    assert all(0 <= derived_seed(run, 0) < 2**31 - MOST_ENVIRONMENTS for run in (0, 1, 10**9))
    assert derived_seed(7, 3) == derived_seed(7, 3)
