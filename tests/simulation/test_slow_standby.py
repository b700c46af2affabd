"""A standby behind a slow link: training goes on as without it, nothing is lost, and later it is in sync again."""

import numpy as np
import pytest

from ps_server.replication.replication import LATE_SECONDS, LEASE_SECONDS
from tests.simulation.cluster import Faults, ones
from tests.simulation.pair import SimulatedPair
from tests.simulation.test_standby import EXACT, PUSH_BYTES, a_pair, no_more_is_pushed

SLOW = 2000.0  # bytes a second: about ten updates, where the workers make a hundred
A_PLEA = 1.0  # seconds, generously: heartbeat, checkpoint, heartbeat


def a_pair_in_sync(seed: int, *, resend_pushes: int) -> SimulatedPair:
    pair = a_pair(seed, updates=10**6, resend_bytes=resend_pushes * PUSH_BYTES)
    pair.follow()
    pair.watch = True
    return pair


def pass_time(pair: SimulatedPair, seconds: float) -> None:
    end = pair.now + seconds
    pair.run_until(lambda: pair.now >= end)


def drops(pair: SimulatedPair) -> int:
    status = pair.server.status(now=pair.now).standby
    assert status is not None
    return status.drops


@pytest.mark.parametrize("seed", range(2))
def test_a_standby_that_becomes_slow_stops_no_worker(seed: int) -> None:
    """It is dropped while the resend buffers fill up, and their rest lasts until its promise has ended."""
    pair = a_pair_in_sync(seed, resend_pushes=600)
    pair.link_bytes_per_second = SLOW
    seen = pair.server.version
    pass_time(pair, 25.0)
    assert pair.longest_standstill_seconds < 0.5
    assert pair.server.version - seen > 25 * 50
    assert drops(pair) >= 1
    assert any("not in sync with p:1 any more" in note for note in pair.notes)


@pytest.mark.parametrize("seed", range(2))
def test_with_little_room_workers_wait_no_longer_than_the_lease_of_a_slow_standby(seed: int) -> None:
    pair = a_pair_in_sync(seed, resend_pushes=40)
    pair.link_bytes_per_second = SLOW
    pass_time(pair, 30.0)
    assert pair.longest_standstill_seconds < LATE_SECONDS + A_PLEA + LEASE_SECONDS
    assert drops(pair) >= 1


@pytest.mark.parametrize("seed", range(2))
def test_a_dropped_standby_takes_nothing_over_at_the_word_of_a_newcomer_while_the_primary_lives(seed: int) -> None:
    """For three seconds the network hides the primary from the standby and from a worker that has just begun."""
    pair = a_pair_in_sync(seed, resend_pushes=40)
    pair.link_bytes_per_second = SLOW
    pair.run_until(lambda: drops(pair) > 0, within_seconds=60)
    pair.run_until(lambda: any("not in sync with p:1 any more" in note for note in pair.notes))
    pair.link_is_cut, pair.sees_no_primary = True, {"newcomer"}
    pair.workers.append(pair.add_worker("newcomer"))
    pass_time(pair, 3.0)
    assert pair.standby.server is None
    pair.link_is_cut, pair.link_bytes_per_second, pair.sees_no_primary = False, None, set()
    pass_time(pair, 5.0)
    no_more_is_pushed(pair)
    pair.run_to_the_end()
    np.testing.assert_array_equal(pair.lost(), 0)


def test_a_primary_that_dies_without_its_slow_standby_loses_nothing_when_it_is_resumed() -> None:
    """The standby lacks what workers have let go of, and says so."""
    pair = SimulatedPair(
        seed=5, faults=Faults(), workers=3, updates=10**6, in_flight=4, gradient=ones, settings=EXACT,
        resend_bytes=100 * PUSH_BYTES,
    )  # fmt: skip
    pair.follow()
    pair.link_bytes_per_second = SLOW
    pair.run_until(lambda: drops(pair) > 0, within_seconds=60)
    pass_time(pair, 2 * LEASE_SECONDS)
    pair.kill_server()
    pair.run_until(lambda: any("which lacks" in note for note in pair.notes), within_seconds=30)
    assert pair.standby.server is None
    pair.restore_server()
    no_more_is_pushed(pair)
    pair.run_to_the_end()
    np.testing.assert_array_equal(pair.lost(), 0)
