"""
A primary that is asked to leave, at any moment, while its workers push: the standby takes over at once, with every
push, and the primary is gone within two seconds; or it saves the run and goes alone.
"""

import random

import numpy as np
import pytest

from ps_server.machine.ending import HANDOVER_SECONDS, Phase
from tests.simulation.cluster import Faults
from tests.simulation.pair import SimulatedPair
from tests.simulation.test_standby import EXACT, NETWORKS, a_pair, nothing_is_lost_or_doubled, run_to_chance

WAITING = EXACT | {"consistency": {"rule": "ssp", "slack": 2}}  # pushes wait at the gate


def leave(pair: SimulatedPair) -> None:
    """SIGTERM, and the work of the shell until the process is gone."""
    pair.ask_to_leave()
    pair.run_until(lambda: pair.exited, within_seconds=HANDOVER_SECONDS + 0.3)
    if not pair.server.ending.fenced:
        pair.save()
        pair.run_until(lambda: not pair.server.has_unsaved, within_seconds=2)
    pair.kill_server()  # what it still writes is older


def all_have_left(pair: SimulatedPair) -> bool:
    """A worker that has finished goes: the others would wait for its pushes."""
    for worker in pair.workers:
        worker.alive = not worker.finished
    return not any(worker.alive for worker in pair.workers)


@pytest.mark.parametrize("settings", [EXACT, WAITING], ids=["async", "ssp"])
@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_a_primary_that_leaves_at_any_moment_loses_no_push(seed: int, faults: Faults, settings: object) -> None:
    pair = a_pair(seed, faults, settings=settings)
    run_to_chance(pair, random.Random(seed))
    leave(pair)
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=60)
    pair.run_until(lambda: all_have_left(pair))
    nothing_is_lost_or_doubled(pair)


@pytest.mark.parametrize("seed", range(2))
def test_on_a_good_network_the_standby_has_the_run_before_workers_notice(seed: int) -> None:
    pair = a_pair(seed, updates=10**6)
    run_to_chance(pair, random.Random(seed))
    asked = pair.now
    pair.ask_to_leave()
    pair.run_until(lambda: bool(pair.server.ending.fenced), within_seconds=HANDOVER_SECONDS)
    assert pair.server.ending.handed_over_to == "s:1"
    assert pair.standby.version == pair.server.version, "with its last update"
    pair.run_until(lambda: pair.standby.version > pair.server.version, within_seconds=5)
    assert pair.now - asked < 0.7, "seven trips over this network, of 0.05 s each, and a tick each"


@pytest.mark.parametrize("seed", range(3))
def test_a_primary_that_cannot_reach_its_standby_saves_the_run_and_goes(seed: int) -> None:
    """The standby, cut off, may take over later, or the primary is resumed: either has every push."""
    pair = a_pair(seed)
    run_to_chance(pair, random.Random(seed))
    pair.link_is_cut, pair.standby_is_reachable = True, False
    leave(pair)
    assert pair.server.phase is Phase.HANDING_OVER
    assert pair.server.checkpoints.saved.version == pair.server.version
    pair.restore_server()
    pair.run_to_the_end()
    np.testing.assert_array_equal(pair.lost(), 0)


def test_a_primary_that_leaves_alone_settles_nothing_meanwhile() -> None:
    """Otherwise a standby that got the last update, and whose reply was lost, would lack pushes."""
    pair = a_pair(2, updates=10**6)
    run_to_chance(pair, random.Random(2))
    pair.link_is_cut = True
    pair.ask_to_leave()
    version = pair.server.version
    pair.run_until(lambda: pair.exited, within_seconds=HANDOVER_SECONDS + 0.3)
    assert pair.server.version == version


def test_the_successor_hands_over_in_its_turn_only_to_a_standby_of_its_own() -> None:
    pair = a_pair(4)
    run_to_chance(pair, random.Random(4))
    leave(pair)
    pair.promote()
    pair.exited = False
    pair.ask_to_leave()
    assert pair.exited
