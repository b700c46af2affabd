"""
Random histories: time, losses, retries, crashes of either side at any moment, restores, full disks. hypothesis looks
for one that breaks a guarantee, and shortens it.

The two machines are real, and so are the bytes between them. Each worker pushes integers into a weight of its own, so
the weights tell at the end whether each push of the living was applied exactly once.
"""

import itertools

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulation.cluster import Faults, Gradient, SimulatedCluster, SimulatedWorker, ones

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
PUSH_BYTES = 12 + 1024


def into(weight: int) -> Gradient:
    """Integers into this weight, and nothing into the others."""
    values = itertools.cycle([1, 2, 4, 8, 16])
    return lambda weights: np.eye(3, dtype=np.float32)[weight] * next(values)


class Histories(RuleBasedStateMachine):
    """One server and two workers that never get enough."""

    cluster: SimulatedCluster

    @initialize(
        seed=st.integers(0, 1000),
        faults=st.sampled_from(
            [Faults(), Faults(drop=0.2), Faults(drop=0.1, duplicate=0.3, longest_delay_seconds=0.4)]
        ),
        room=st.sampled_from([3, 20, 10_000]),
        pulls=st.booleans(),
        in_flight=st.integers(1, 4),
    )
    def start(self, seed: int, faults: Faults, room: int, pulls: bool, in_flight: int) -> None:
        self.cluster = SimulatedCluster(
            workers=2,
            updates=10**6,
            seed=seed,
            faults=faults,
            gradient=ones,
            settings=EXACT,
            resend_bytes=room * PUSH_BYTES,
            in_flight=in_flight,
            pulls=pulls,
            checkpoint_takes_seconds=0.3,
        )
        for number, worker in enumerate(self.cluster.workers):
            worker.gradient = into(number)
        self.dead: SimulatedWorker | None = None
        self.cluster.run_until(lambda: self.cluster.checkpoint is not None)

    @rule(ticks=st.sampled_from([1, 3, 10, 30, 100]))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.cluster.step()
            self.no_push_is_applied_twice()

    @rule(drop=st.sampled_from([0.0, 0.3, 1.0]), duplicate=st.sampled_from([0.0, 0.5]))
    def the_network_changes(self, drop: float, duplicate: float) -> None:
        self.cluster.network.faults = Faults(drop=drop, duplicate=duplicate, longest_delay_seconds=0.2)

    @precondition(lambda self: self.cluster.server_up)
    @rule(after_ticks=st.sampled_from([0, 5, 20, 60]))
    def the_server_is_killed(self, after_ticks: int) -> None:
        self.time_passes(after_ticks)
        self.cluster.kill_server()

    @precondition(lambda self: not self.cluster.server_up)
    @rule(after_ticks=st.sampled_from([0, 1, 20, 150]))
    def the_server_comes_back(self, after_ticks: int) -> None:
        self.time_passes(after_ticks)
        self.cluster.restore_server()

    @precondition(lambda self: self.dead is None)
    @rule(which=st.integers(0, 1))
    def a_worker_is_killed_and_started_anew(self, which: int) -> None:
        self.dead = self.cluster.workers[which]
        self.cluster.restart_worker(which)
        self.cluster.workers[which].gradient = into(2)

    @precondition(lambda self: self.cluster.server_up)
    @rule()
    def somebody_asks_for_a_checkpoint(self) -> None:
        self.cluster.save()

    @rule(full=st.booleans())
    def the_disk_fills_or_has_room(self, full: bool) -> None:
        """Pushes may be let go while it is full: then nothing is said of those of a server that is killed."""
        self.cluster.disk_full = full and self.cluster.server_up and self.cluster.resend_bytes > 10**6

    @invariant()
    def no_push_is_applied_twice(self) -> None:
        """The server says of no more pushes that they are applied than were made."""
        run = self.cluster.server.run
        assert run is not None
        for worker in self.cluster.workers:
            account = run.ledger.accounts.get(worker.worker_id)
            if account is not None and account.proof == worker.proof:
                assert account.durable <= account.through <= worker.made
                assert all(account.through < early <= worker.made for early in account.early)
        assert run.weights.version - 1 <= sum(worker.made for worker in self.all_workers())
        assert all(-run.weights.flat.numpy() <= sum(worker.total for worker in self.all_workers()))

    @invariant()
    def what_a_worker_was_told_is_true(self) -> None:
        for worker in self.cluster.workers:
            assert worker.error is None
            assert len(worker.applied) == len(set(worker.applied)) == worker.acknowledged

    def all_workers(self) -> list[SimulatedWorker]:
        """The killed one too: its pushes may be in the weights, or may not."""
        return [*self.cluster.workers, *([self.dead] if self.dead else [])]

    def teardown(self) -> None:
        """Let the workers come to an end on a good network: every push of theirs is in the weights once."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.network.faults = Faults()
        cluster.disk_full = False
        if not cluster.server_up:
            cluster.restore_server()
        for worker in cluster.workers:
            worker.updates = worker.made
        cluster.run_until(lambda: all(worker.finished for worker in cluster.workers))
        theirs = [number for number in range(3) if self.dead is None or self.dead.total[number] == 0]
        cluster.run_until(lambda: not cluster.lost()[theirs].any(), within_seconds=60.0)
        self.no_push_is_applied_twice()


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
