"""
A primary that dies at any moment, and its standby: the sum of all pushes is exact, and the weights are bit for bit
those of a run without the crash that has had the same updates.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch

from ps_common.protocol.messages import Opened
from ps_server.machine.ending import Phase
from ps_server.replication import replication
from ps_server.state.training_run import TrainingRun
from tests.simulation.cluster import SCHEMA, Faults, integers, towards_goal
from tests.simulation.pair import SimulatedPair

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
NETWORKS = [Faults(), Faults(drop=0.1), Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)]
Q_LEARNING: dict[str, Any] = {
    "optimizer": {"name": "rmsprop"},
    "algorithm": {"name": "one_step_q", "target_interval": 60},
    "schedule": {"learning_rate": 0.01, "final_learning_rate": 0.0, "anneal_steps": 2000},
}
PUSH_BYTES = 12 + 1024


def a_pair(seed: int, faults: Faults = NETWORKS[0], **options: Any) -> SimulatedPair:
    known: dict[str, Any] = {"workers": 3, "updates": 150, "in_flight": 4, "checkpoint_takes_seconds": 0.4}
    known |= {"gradient": integers(seed), "settings": EXACT}
    return SimulatedPair(seed=seed, faults=faults, **known | options)


def run_to_chance(pair: SimulatedPair, chance: random.Random) -> None:
    """Until some moment in the run, with a standby that follows."""
    pair.follow()
    target = pair.server.version + chance.randrange(5, 200)
    pair.run_until(lambda: pair.server.version >= target)
    for _ in range(chance.randrange(10)):
        pair.step()


def nothing_is_lost_or_doubled(pair: SimulatedPair) -> None:
    pair.promote()
    pair.run_to_the_end()
    made = sum(worker.made for worker in pair.workers)
    pair.run_until(lambda: pair.server.version >= 1 + made)
    assert [worker.error for worker in pair.workers] == [None] * len(pair.workers)
    np.testing.assert_array_equal(pair.lost(), 0)
    assert pair.server.version == 1 + made
    assert pair.server.run is not None
    assert pair.server.run.progress.global_steps == 2 * made


def no_more_is_pushed(pair: SimulatedPair) -> None:
    """Than has been by now."""
    for worker in pair.workers:
        worker.updates = worker.made


def it_is_replaced_and_nothing_is_lost(pair: SimulatedPair, seed: int) -> None:
    """The primary dies at a moment of chance."""
    run_to_chance(pair, random.Random(seed))
    pair.kill_server()
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=60)
    nothing_is_lost_or_doubled(pair)


@pytest.mark.parametrize("pulls", [True, False], ids=["push-pull", "push"])
@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_a_primary_that_dies_at_any_moment_loses_no_push(seed: int, faults: Faults, pulls: bool) -> None:
    pair = a_pair(seed, faults, pulls=pulls)
    it_is_replaced_and_nothing_is_lost(pair, seed)


@pytest.mark.parametrize("seed", range(2))
def test_with_little_room_workers_let_go_only_of_what_the_standby_has(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The worker's buffer is full all the time, and each checkpoint lets it go on: pushes that it lets go of must be here.

    A standby that lags because messages are lost is not dropped: it is to take over.
    """
    monkeypatch.setattr(replication, "LATE_SECONDS", 60.0)
    pair = a_pair(seed, NETWORKS[1], resend_bytes=8 * PUSH_BYTES, updates=400)
    it_is_replaced_and_nothing_is_lost(pair, seed)


@pytest.mark.parametrize("faults", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_weights_are_those_of_a_run_without_the_crash(
    seed: int, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RMSProp with a target network: all updates of both servers, one after another, in a run that never fell."""
    settled: dict[TrainingRun, list[Any]] = {}
    settle = TrainingRun.settle

    def settle_and_remember(run: TrainingRun, pushes: Any) -> Any:
        settled.setdefault(run, []).append([(who, push, list(vector)) for who, push, vector in pushes])
        return settle(run, pushes)

    monkeypatch.setattr(TrainingRun, "settle", settle_and_remember)
    pair = a_pair(seed, faults, settings=Q_LEARNING, gradient=towards_goal)
    run_to_chance(pair, random.Random(seed))
    primary = settled[the_run(pair)]
    pair.kill_server()
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=60)
    pair.promote()
    pair.run_to_the_end()
    run = the_run(pair)
    at_standby = settled[run]
    monkeypatch.undo()
    whole = primary[: run.progress.updates - len(at_standby)] + at_standby
    reference = TrainingRun(run.spec, run.lineage)
    reference.seed(SCHEMA, torch.zeros(SCHEMA.size))
    for worker in pair.workers:
        opened = Opened(incarnation=1, proof="p", key="", oldest=1, environments=1)
        reference.ledger.open(worker.worker_id, opened)
    for pushes in whole:
        reference.settle(pushes)
    ours, theirs = run.weights.vectors(), reference.weights.vectors()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert (run.weights.version, run.weights.target_version, run.progress.global_steps) == (
        reference.weights.version,
        reference.weights.target_version,
        reference.progress.global_steps,
    )
    assert 0 < len(at_standby) <= len(whole) == 3 * 150
    assert run.weights.target_version > 1


def the_run(pair: SimulatedPair) -> TrainingRun:
    assert pair.server.run is not None
    return pair.server.run


def test_a_primary_that_was_paused_stops_when_it_goes_on() -> None:
    pair = a_pair(1)
    run_to_chance(pair, random.Random(1))
    pair.pause()
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=10)
    pair.go_on()
    pair.run_until(lambda: pair.server.phase is Phase.FENCED, within_seconds=10)
    assert "ps-server --standby-of s:1" in pair.server.ending.fenced
    nothing_is_lost_or_doubled(pair)


@pytest.mark.parametrize("seed", range(2))
def test_the_workers_alone_fence_a_primary_that_its_standby_cannot_reach(seed: int) -> None:
    pair = a_pair(seed, updates=3000)
    run_to_chance(pair, random.Random(seed))
    pair.pause()
    pair.link_is_cut = True
    goal = pair.server.version + 100
    pair.run_until(lambda: pair.standby.version >= goal, within_seconds=10)
    pair.go_on()
    pair.standby_is_reachable = False
    pair.run_until(lambda: pair.server.phase is Phase.FENCED, within_seconds=10)
    pair.standby_is_reachable = True
    no_more_is_pushed(pair)
    nothing_is_lost_or_doubled(pair)


@pytest.mark.parametrize("seed", range(2))
def test_a_split_ends_with_one_writer_that_says_what_is_lost(seed: int) -> None:
    """The servers do not see each other; one worker sees only the standby, the others see the primary."""
    pair = a_pair(seed, updates=10**6)
    run_to_chance(pair, random.Random(seed))
    pair.link_is_cut, pair.sees_no_primary = True, {"w0"}
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=10)
    both = (pair.server.version + 100, pair.standby.version + 100)
    pair.run_until(lambda: (pair.server.version, pair.standby.version) > both, within_seconds=10)
    for _ in range(200):
        pair.step()
    assert pair.server.phase is Phase.SERVING, "nobody has told it"
    pair.link_is_cut = False
    pair.run_until(lambda: pair.server.phase is Phase.FENCED, within_seconds=10)
    no_more_is_pushed(pair)
    pair.promote()
    pair.run_to_the_end()
    made = sum(worker.made for worker in pair.workers)
    lost = sum(int(note.split()[3]) for note in pair.notes if "that this server lacks" in note)
    assert lost > 0
    pair.run_until(lambda: pair.server.version == 1 + made - lost, within_seconds=30)


def test_a_standby_that_is_cut_off_slows_nobody_down_and_does_not_take_over_what_it_lacks() -> None:
    pair = a_pair(2, updates=2000, resend_bytes=50 * PUSH_BYTES)
    run_to_chance(pair, random.Random(2))
    pair.link_is_cut = True
    seen = pair.server.version
    pair.run_until(lambda: pair.server.version > seen + 300, within_seconds=60)
    pair.run_until(lambda: all(account.durable > 200 for account in accounts(pair)), within_seconds=60)
    pair.kill_server()
    for _ in range(200):
        pair.step()
    assert pair.standby.server is None
    pair.link_is_cut = False
    pair.restore_server()
    no_more_is_pushed(pair)
    pair.run_to_the_end()
    np.testing.assert_array_equal(pair.lost(), 0)
    pair.follow()


def accounts(pair: SimulatedPair) -> list[Any]:
    return list(the_run(pair).ledger.accounts.values())


def test_a_false_alarm_takes_a_worker_to_the_standby_and_back() -> None:
    pair = a_pair(3)
    run_to_chance(pair, random.Random(3))
    worker = pair.workers[0]
    connections = worker.connections
    pair.network.faults = Faults(drop=1.0)
    for _ in range(23):
        pair.step()
    pair.network.faults = Faults()
    pair.run_to_the_end()
    assert worker.connections > connections
    assert pair.standby.server is None or pair.server.phase is Phase.FENCED
    if pair.standby.server is not None:
        pair.promote()
    pair.run_until(lambda: not pair.lost().any(), within_seconds=30)
