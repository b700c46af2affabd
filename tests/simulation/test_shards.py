"""A run whose vector several servers hold: equal to that of one server, and nothing lost or doubled at any of them."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS, Wire
from tests.simulation.cluster import Faults
from tests.simulation.shards import SimulatedShards
from tests.simulation.swarm import Played
from tests.simulation.worlds import drawn

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
SMALL = Schema([TensorSpec("a", (3, 2)), TensorSpec("b", (5,)), TensorSpec("seen", (2,), role="statistic")])
LARGE = Schema(
    [TensorSpec("a", (40, 31)), TensorSpec("b", ()), TensorSpec("c", (77,)), TensorSpec("seen", (9,), role="statistic")]
)
ROUNDS = 10
GOOD = Faults()
BAD = Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)
OPTIMIZERS: list[dict[str, Any]] = [
    {"name": name} | ({"epsilon": 0.01} if name == "rmsprop" else {}) for name in OPTIMIZER_SETTINGS
]


def rounds(
    shards: int, *, faults: Faults = GOOD, kills: bool = False, wire: Wire | None = None, **run: Any
) -> SimulatedShards:
    """Synchronous rounds of three workers, whose gradients depend on the weights that they have."""
    sync = {"consistency": {"rule": "sync", "quorum": 3}, "algorithm": {"name": "n_step_q", "target_interval": 30}}
    annealed = {"schedule": {"learning_rate": 0.05, "anneal_steps": 400}}
    cluster = SimulatedShards(
        LARGE, shards=shards, workers=3, settings=sync | annealed | run, faults=GOOD, wire=wire or Wire(prefetch=1)
    )
    drawn = torch.Generator().manual_seed(3)
    weights = torch.randn(LARGE.size, generator=drawn)
    cluster.seed(weights)
    for shard in cluster.clusters:  # they have joined in order: each gradient of a round has its place
        shard.network.faults = faults
    have = [weights.clone() for _ in range(3)]
    chance = random.Random(1)
    for made in range(ROUNDS):
        for worker in range(3):
            noise = torch.randn(LARGE.size, generator=drawn)
            # After a crash, when a worker learns which weights is a matter of time.
            newest = cluster.push(worker, noise if kills else torch.sin(3 * have[worker]) + noise)
            if newest.weights is not None:
                have[worker] = newest.weights.clone()
        if kills and made % 5 == 4:
            one = chance.choice(cluster.clusters)
            one.kill_server()
            for _ in range(chance.randrange(1, 40)):
                cluster.step()
            one.restore_server()
    cluster.run_to_the_end()
    return cluster


def vectors(cluster: SimulatedShards) -> dict[str, Tensor]:
    """All vectors that a checkpoint keeps, whole."""
    run = cluster.clusters[0].server.run
    assert run is not None
    return {name: cluster.whole(name) for name, one in run.weights.vectors().items() if one.dim()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer["name"])
def test_four_shards_in_rounds_equal_one_server_bit_for_bit(optimizer: dict[str, Any]) -> None:
    """The optimizers are elementwise, and every schedule depends on T alone: this is what shards rest on."""
    one, four = (rounds(shards, optimizer=optimizer) for shards in (1, 4))
    assert vectors(one).keys() == vectors(four).keys()
    for name, vector in vectors(one).items():
        assert torch.equal(vector, vectors(four)[name]), name
    for cluster in [*one.clusters, *four.clusters]:
        assert cluster.server.run is not None
        assert cluster.server.run.progress.global_steps == 2 * 3 * ROUNDS
        assert cluster.server.version == 1 + ROUNDS
        assert cluster.server.run.weights.target_version > 1


def test_shards_that_are_killed_one_by_one_equal_one_server_bit_for_bit() -> None:
    """The network repeats and reorders; it loses nothing, because a round does not wait for a worker that is silent."""
    optimizer = {"name": "rmsprop"}
    one = rounds(1, optimizer=optimizer, kills=True)
    four = rounds(4, optimizer=optimizer, faults=Faults(duplicate=0.2, longest_delay_seconds=0.1), kills=True)
    assert sum(cluster.lives for cluster in four.clusters) == 4 + ROUNDS // 5
    for name, vector in vectors(one).items():
        assert torch.equal(vector, vectors(four)[name]), name


@pytest.mark.parametrize("codec", ["topk", "int8"])
def test_compressed_pushes_to_shards_are_settled_everywhere(codec: Any) -> None:
    """The part that a codec drops is added to the next push of the same range."""
    cluster = SimulatedShards(
        LARGE, shards=3, workers=1, settings=EXACT, faults=Faults(), wire=Wire(gradient_codec=codec, prefetch=4)
    )
    cluster.seed(torch.zeros(LARGE.size))
    gradient = torch.linspace(-1, 1, LARGE.size)
    for _ in range(40):
        cluster.push(0, gradient.clone())
    cluster.run_to_the_end()
    error = cluster.whole() + cluster.totals[0]
    error[LARGE.weights :] = cluster.whole()[LARGE.weights :] - cluster.totals[0][LARGE.weights :]
    assert float(error.abs().max()) < 5.0, "40 pushes of up to 1 were made"


def test_a_gradient_that_is_not_finite_in_one_range_is_discarded_by_all() -> None:
    cluster = SimulatedShards(SMALL, shards=3, workers=1, settings=EXACT, faults=Faults(), prefetch=0)
    cluster.seed(torch.zeros(SMALL.size))
    gradient = torch.ones(SMALL.size)
    gradient[0] = torch.nan
    settled = cluster.push(0, gradient).settled
    assert settled is not None
    assert (settled.verdict, settled.code) == ("discarded", "not_finite")
    assert cluster.whole().tolist() == [0] * SMALL.size
    settled = cluster.push(0, torch.ones(SMALL.size)).settled
    assert settled is not None
    assert settled.verdict == "applied"
    assert [one.server.version for one in cluster.clusters] == [2, 2, 2]


@pytest.mark.parametrize(("value", "is_applied"), [(65519.0, True), (65520.0, False), (-1e6, False)])
def test_a_gradient_that_the_codec_makes_infinite_in_one_range_is_discarded_by_all(
    value: float, is_applied: bool
) -> None:
    wire = Wire(gradient_codec="float16", prefetch=0)
    cluster = SimulatedShards(SMALL, shards=3, workers=1, settings=EXACT, faults=Faults(), wire=wire)
    cluster.seed(torch.zeros(SMALL.size))
    gradient = torch.ones(SMALL.size)
    gradient[0] = value
    settled = cluster.push(0, gradient).settled
    assert settled is not None
    assert [one.server.version for one in cluster.clusters] == [1 + is_applied] * 3
    assert (settled.verdict == "applied") is is_applied


def test_a_run_is_adjusted_while_a_shard_is_down_and_a_worker_joins() -> None:
    """Shard 1 decides, and its T; the others have the same settings before they apply another gradient."""
    rate = {"schedule": {"learning_rate": 1.0, "anneal_steps": 1000}}
    cluster = SimulatedShards(SMALL, shards=3, workers=2, settings=EXACT | rate, faults=Faults(drop=0.2))
    cluster.seed(torch.zeros(SMALL.size))
    for _ in range(3):
        cluster.push(0, torch.ones(SMALL.size))
    cluster.run_to_the_end()
    cluster.clusters[2].save()
    cluster.step()
    cluster.clusters[2].kill_server()
    cluster.adjust({"schedule.learning_rate": 0.5, "budget.max_steps": 5000})
    cluster.run_until(lambda: cluster.decided()[1] == cluster.decided()[0])
    for _ in range(3):
        cluster.push(1, torch.ones(SMALL.size))
    cluster.clusters[2].restore_server()
    cluster.run_to_the_end()
    decided = cluster.decided()
    assert decided == decided[:1] * 3
    spec, adjusted = decided[0]
    assert (spec.schedule.learning_rate, spec.schedule.anneal_start, spec.budget.max_steps) == (0.5, 6, 5000)
    assert [one.global_steps for one in adjusted.history] == [6, 6]
    weights = cluster.whole()[: SMALL.weights]
    assert torch.equal(weights, weights[:1].expand_as(weights)), "each range was moved by the same rates"


def test_a_shard_that_was_down_when_the_run_was_paused_applies_nothing() -> None:
    cluster = SimulatedShards(SMALL, shards=2, workers=1, settings=EXACT, faults=Faults())
    cluster.seed(torch.zeros(SMALL.size))
    cluster.clusters[1].kill_server()
    cluster.adjust({"paused": True})
    cluster.clusters[1].restore_server()
    cluster.push(0, torch.ones(SMALL.size))
    for _ in range(100):
        cluster.step()
    assert cluster.whole().tolist() == [0] * SMALL.size
    cluster.adjust({"paused": False})
    cluster.run_to_the_end()
    assert cluster.whole()[: SMALL.weights].tolist() == [-1] * SMALL.weights


def test_target_weights_of_shards_are_pulled_whole() -> None:
    algorithm = {"name": "n_step_q", "target_interval": 4}
    cluster = SimulatedShards(
        SMALL, shards=2, workers=1, settings=EXACT | {"algorithm": algorithm}, faults=Faults(), prefetch=0
    )
    cluster.seed(torch.zeros(SMALL.size))
    before = cluster.newest[0].target_version
    for _ in range(3):
        newest = cluster.push(0, torch.ones(SMALL.size))
    assert newest.target_version != before
    target = cluster.workers[0].pull(target=True)
    assert target.weights is not None
    assert target.weights[: SMALL.weights].tolist() == [-2] * SMALL.weights
    assert (target.epoch, target.version) == (newest.epoch, newest.target_version)
    assert newest.weights is not None
    assert newest.weights[: SMALL.weights].tolist() == [-3] * SMALL.weights
    assert cluster.workers[0].pull(newest).weights is None


class ShardHistories(RuleBasedStateMachine):
    """Three shards and two workers: any order of pushes, losses, and kills of single shards."""

    cluster: SimulatedShards

    @initialize(
        seed=st.integers(0, 1000),
        faults=st.sampled_from([Faults(), Faults(drop=0.2), BAD]),
        kept=st.sampled_from([4, 10_000]),
    )
    def start(self, seed: int, faults: Faults, kept: int) -> None:
        self.cluster = SimulatedShards(
            SMALL,
            shards=3,
            workers=2,
            seed=seed,
            settings=EXACT,
            faults=faults,
            resend_bytes=kept * 1100,
            checkpoint_takes_seconds=0.3,
        )
        self.cluster.seed(torch.zeros(SMALL.size))
        self.drawn = torch.Generator().manual_seed(seed)

    @rule(worker=st.integers(0, 1), times=st.integers(1, 4))
    def a_worker_pushes(self, worker: int, times: int) -> None:
        for _ in range(times):
            if self.in_flight(worker) >= 16:
                return  # the worker would wait, perhaps for a shard that is down
            self.cluster.push(worker, torch.randint(-9, 10, (SMALL.size,), generator=self.drawn).float())

    @rule(ticks=st.sampled_from([1, 5, 20, 50]))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.cluster.step()

    @rule(shard=st.integers(0, 2), drop=st.sampled_from([0.0, 0.3, 1.0]), duplicate=st.sampled_from([0.0, 0.5]))
    def the_network_of_a_shard_changes(self, shard: int, drop: float, duplicate: float) -> None:
        faults = Faults(drop=drop, duplicate=duplicate, longest_delay_seconds=0.2)
        self.cluster.clusters[shard].network.faults = faults

    @rule(settings=st.sampled_from([{"paused": True}, {"paused": False}, {"budget.max_steps": 10**6}]))
    def the_run_is_adjusted(self, settings: dict[str, Any]) -> None:
        if self.cluster.clusters[0].server_up:
            self.cluster.adjust(settings)

    @rule(shard=st.integers(0, 2))
    def a_shard_is_killed(self, shard: int) -> None:
        if self.cluster.clusters[shard].server_up:
            self.cluster.clusters[shard].kill_server()

    @rule(shard=st.integers(0, 2))
    def a_shard_comes_back(self, shard: int) -> None:
        if not self.cluster.clusters[shard].server_up:
            self.cluster.clusters[shard].restore_server()

    @rule(shard=st.integers(0, 2))
    def a_shard_is_saved(self, shard: int) -> None:
        if self.cluster.clusters[shard].server_up:
            self.cluster.clusters[shard].save()

    @invariant()
    def no_push_is_settled_twice_or_was_never_made(self) -> None:
        assert self.cluster.errors() == []
        for cluster in self.cluster.clusters:
            run = cluster.server.run
            assert run is not None
            assert run.weights.version - 1 <= sum(self.cluster.made)
            for number, made in enumerate(self.cluster.made):
                account = run.ledger.accounts.get(f"w{number}")
                assert account is None or account.durable <= account.through <= made

    def in_flight(self, worker: int) -> int:
        return max(len(one._pending) for one in self.cluster.connections[worker])

    def teardown(self) -> None:
        """On a good network every push of every worker is at every shard once."""
        if not hasattr(self, "cluster"):
            return
        for cluster in self.cluster.clusters:
            cluster.network.faults = Faults()
            if not cluster.server_up:
                cluster.restore_server()
        self.cluster.adjust({"paused": False})
        self.cluster.run_to_the_end()
        self.cluster.run_until(lambda: self.cluster.decided() == self.cluster.decided()[:1] * 3)
        self.no_push_is_settled_twice_or_was_never_made()
        total = sum(self.cluster.totals, torch.zeros(SMALL.size))
        total[: SMALL.weights] *= -1
        assert torch.equal(self.cluster.whole(), total)
        for cluster in self.cluster.clusters:
            assert cluster.server.run is not None
            assert cluster.server.version == 1 + sum(self.cluster.made)
            assert cluster.server.run.progress.global_steps == 2 * sum(self.cluster.made)


class FurtherShardHistories(ShardHistories):
    """The same, for `make nightly`."""


def histories(count: int) -> settings:
    return settings(max_examples=count, stateful_step_count=20, suppress_health_check=list(HealthCheck))


TestShardHistories = ShardHistories.TestCase
TestShardHistories.settings = histories(4)
TestFurtherShardHistories = pytest.mark.nightly(pytest.mark.timeout(1800)(FurtherShardHistories.TestCase))
TestFurtherShardHistories.settings = histories(60)


@pytest.mark.parametrize("in_flight", [1, 3])
def test_workers_that_are_ahead_at_different_shards_go_on(in_flight: int) -> None:
    """A lease ends at one shard, and that of another worker at the other: each worker is a round ahead somewhere."""
    rounds_of_two = {"standbys": (False, False), "workers": 2, "rule": "sync", "quorum": 0, "in_flight": in_flight}
    world = Played(replace(drawn(0), **rounds_of_two))
    with world.prepared():
        world.calm()
        workers = world.clusters[0].workers
        world.until(lambda: all(worker.acknowledged > 3 for worker in workers), "begun")
        for cluster, worker in zip(world.clusters, workers, strict=True):
            cluster.network.faults_of[f"{worker.worker_id}>"] = Faults(drop=1.0)
        world.until(lambda: all(cluster.server.membership.ended_leases for cluster in world.clusters), "leases ended")
        world.calm()
        world.until(lambda: all(cluster.server.membership.count_alive() == 2 for cluster in world.clusters), "back")
        made = [worker.made for worker in workers]
        world.until(lambda: all(one.made > 20 + before for one, before in zip(workers, made, strict=True)), "on")
