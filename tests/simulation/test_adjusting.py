"""Adjustments on bad networks: a standby that takes over, a server that is restored, and the workers have them all."""

import random
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import ToWorker
from tests.simulation.cluster import Faults, SimulatedCluster
from tests.simulation.pair import SimulatedPair
from tests.simulation.test_standby import NETWORKS, a_pair, nothing_is_lost_or_doubled

SETTINGS = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}


def adjust(cluster: SimulatedCluster, **settings: Any) -> messages.Adjusted:
    """By an admin whose connection loses nothing."""
    wanted = {name.replace("__", "."): value for name, value in settings.items()}
    effects = cluster.server.receive(b"admin", messages.Adjust(request=1, settings=wanted), now=cluster.now)
    replies: list[ToWorker] = [effect.message for effect in effects if getattr(effect, "to", b"") == b"admin"]
    cluster._do_server([effect for effect in effects if getattr(effect, "to", b"") != b"admin"])
    (reply,) = replies
    assert isinstance(reply, messages.Adjusted)
    return reply


def entropy_weights(cluster: SimulatedCluster) -> list[float]:
    """As each worker has it; the run's first one, where nothing was adjusted."""
    weights = []
    for worker in cluster.workers:
        run = worker.machine.adjusted_run
        algorithm: Any = cluster.run.to_dict()["algorithm"] if run is None else run["algorithm"]
        weights.append(algorithm["entropy_weight"])
    return weights


def a_cluster(seed: int, faults: Faults, **options: Any) -> SimulatedCluster:
    known: dict[str, Any] = {"workers": 3, "updates": 10**6, "settings": SETTINGS}
    return SimulatedCluster(seed=seed, faults=faults, **known | options)


@pytest.mark.parametrize("faults", NETWORKS, ids=str)
def test_every_worker_takes_over_an_adjustment(faults: Faults) -> None:
    cluster = a_cluster(1, faults)
    cluster.run_until(lambda: cluster.server.version > 20)
    adjust(cluster, algorithm__entropy_weight=0.25)
    cluster.run_until(lambda: entropy_weights(cluster) == [0.25] * 3, within_seconds=30)
    adjust(cluster, algorithm__entropy_weight=0.125)
    cluster.run_until(lambda: entropy_weights(cluster) == [0.125] * 3, within_seconds=30)
    assert [worker.error for worker in cluster.workers] == [None] * 3


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_server_has_the_adjustments_of_its_checkpoint_and_so_have_its_workers(seed: int) -> None:
    cluster = a_cluster(seed, NETWORKS[2])
    cluster.run_until(lambda: cluster.server.version > 20)
    adjust(cluster, algorithm__entropy_weight=0.25, schedule__learning_rate=0.5)
    saved = cluster.checkpoint
    cluster.run_until(lambda: cluster.checkpoint is not saved, within_seconds=2)
    adjust(cluster, algorithm__entropy_weight=0.125)
    cluster.kill_server()
    cluster.restore_server()
    cluster.run_until(lambda: entropy_weights(cluster) == [0.25] * 3, within_seconds=60)
    assert cluster.server.run is not None
    assert (cluster.server.run.learning_rate, cluster.server.run.adjustments.version) == (0.5, 2)
    goal = cluster.server.version + 20
    cluster.run_until(lambda: cluster.server.version > goal, within_seconds=60)
    assert [worker.error for worker in cluster.workers] == [None] * 3


@pytest.mark.parametrize("faults", NETWORKS[:2], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_a_standby_that_takes_over_has_every_adjustment_and_loses_no_push(seed: int, faults: Faults) -> None:
    pair = a_pair(seed, faults)
    run_a_while(pair, random.Random(seed))
    adjusted = adjust(pair, algorithm__entropy_weight=0.25, budget__max_steps=10**6).adjustments
    assert len(adjusted) == 2
    pair.run_until(lambda: standby_version(pair) == 2, within_seconds=30)
    pair.kill_server()
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=60)
    assert pair.successor.run is not None
    assert pair.successor.run.adjustments.history == adjusted
    assert pair.successor.run.spec.budget.max_steps == 10**6
    pair.run_until(lambda: entropy_weights(pair) == [0.25] * 3, within_seconds=60)
    nothing_is_lost_or_doubled(pair)


def run_a_while(pair: SimulatedPair, chance: random.Random) -> None:
    pair.follow()
    target = pair.server.version + chance.randrange(5, 100)
    pair.run_until(lambda: pair.server.version >= target)


def standby_version(pair: SimulatedPair) -> int:
    return pair.standby.run.adjustments.version if pair.standby.run is not None else 0


def test_a_run_that_was_paused_is_paused_after_a_takeover_and_goes_on_exactly() -> None:
    pair = a_pair(5, NETWORKS[1])
    run_a_while(pair, random.Random(5))
    adjust(pair, paused=True)
    version = pair.server.version
    pair.run_until(lambda: standby_version(pair) == 1, within_seconds=30)
    for _ in range(200):
        pair.step()
    assert pair.server.version == version
    assert [worker.error for worker in pair.workers] == [None] * 3
    pair.kill_server()
    pair.run_until(lambda: pair.standby.server is not None, within_seconds=60)
    for _ in range(200):
        pair.step()
    assert pair.successor.version == version
    pair.promote()
    adjust(pair, paused=False)
    nothing_is_lost_or_doubled(pair)
