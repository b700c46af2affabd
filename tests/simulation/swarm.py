"""
A whole world from one integer: a server, alone or with a standby, its workers, their network, and what befalls them.

A world has two phases. While the faults last nothing may be applied twice. Then everything is healed, and the world
must be live (each worker has all its pushes acknowledged within a bound of simulated seconds) and exact (the weights
are the sum of all pushes, once each, in integers).

`make swarm SEED=7` plays one world and prints a table of its events; `make swarm MINUTES=10 FIRST=1000` searches from
that seed on, with all cores.
"""

import itertools
import multiprocessing
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from tests.simulation.cluster import Faults, Gradient, SimulatedCluster, ones
from tests.simulation.pair import SimulatedPair

EXACT = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
PUSH_BYTES = 12 + 1024
LIVE_SECONDS = 180.0  # for a healed world to settle every push
REJOIN_SECONDS = 20.0  # until nobody leaves: acknowledged pushes that the server has lost are sent again meanwhile
RESUMED_SECONDS = 30.0  # without a server, after which somebody starts a primary again
UNCERTAIN = 2  # the weight of worker w0, whose processes may be killed with pushes that nobody sends again


@dataclass(frozen=True, kw_only=True)
class World:
    """What is drawn from a seed. Each of `events` is a pause in seconds, and what happens then."""

    seed: int
    has_standby: bool
    workers: int
    rule: str
    in_flight: int
    pulls: bool
    resend_pushes: int
    receive_bytes: int
    checkpoint_seconds: float
    checkpoint_takes_seconds: float
    events: tuple[tuple[float, str], ...]

    def events_of(self, kind: str) -> list[float]:
        """The pauses before each event of this kind."""
        return [seconds for seconds, event in self.events if event == kind]


SINGLE = ("kill server", "restore server", "restart worker", "checkpoint", "fill disk", "empty disk", "join", "network")
PAIR = ("restart worker", "checkpoint", "join", "network")
LAST = ("kill server", "kill server in sync", "pause server in sync")  # of a pair


def drawn(seed: int) -> World:
    """The world of this seed."""
    chance = random.Random(seed)
    has_standby = chance.random() < 0.4
    kinds = PAIR if has_standby else SINGLE
    events = [(chance.choice([0.05, 0.3, 1.0, 3.0]), chance.choice(kinds)) for _ in range(chance.randint(1, 12))]
    return World(
        seed=seed,
        has_standby=has_standby,
        workers=chance.randint(1, 6),
        rule=chance.choice(["async", "async", "ssp"]),
        in_flight=chance.randint(1, 6),
        pulls=chance.random() < 0.7,
        resend_pushes=chance.choice([3, 20, 10_000]),
        receive_bytes=chance.choice([12, 40, 2**30]),
        checkpoint_seconds=chance.choice([0.5, 2.0, 5.0]),
        checkpoint_takes_seconds=chance.choice([0.0, 0.3, 1.5]),
        events=(*events, (1.0, chance.choice(LAST))) if has_standby else tuple(events),
    )


class Played:
    """One world while it is played. `tamper` is called once before the world is healed: a test breaks something."""

    def __init__(self, world: World, *, tamper: Callable[[SimulatedCluster], None] = lambda _: None) -> None:
        self.world, self._tamper = world, tamper
        self._chance = random.Random(world.seed + 1)
        self.table: list[str] = []  # one line an event
        self.cluster = (SimulatedPair if world.has_standby else SimulatedCluster)(
            workers=world.workers,
            updates=10**6,
            seed=world.seed,
            faults=self._drawn_faults(),
            gradient=ones,
            settings=EXACT | {"consistency": {"rule": world.rule} | ({"slack": 3} if world.rule == "ssp" else {})},
            resend_bytes=world.resend_pushes * PUSH_BYTES,
            in_flight=world.in_flight,
            pulls=world.pulls,
            receive_bytes=world.receive_bytes,
            checkpoint_seconds=world.checkpoint_seconds,
            checkpoint_takes_seconds=world.checkpoint_takes_seconds,
        )
        self.began = self.cluster.now
        self.killed: list[Any] = []  # worker processes
        for number, worker in enumerate(self.cluster.workers):
            worker.gradient = _into(number)

    def play(self) -> float:
        """Play it to its end. Returns its simulated seconds; raises AssertionError when a guarantee is broken."""
        cluster = self.cluster
        self._until(lambda: cluster.checkpoint is not None, "saved at first")
        if isinstance(cluster, SimulatedPair):
            self._until(lambda: cluster.server.replication.followed is not None or self._has_taken_over(), "in sync")
        for seconds, event in self.world.events:
            self._pass(seconds)
            self._do(event)
        self._tamper(cluster)
        self._heal()
        self._until(self._is_exact, "exact")
        return cluster.now - self.began

    def _do(self, event: str) -> None:
        cluster = self.cluster
        if isinstance(cluster, SimulatedPair) and event.endswith("in sync"):
            cluster.network.faults = Faults()
            self._until(lambda: cluster.standby.is_complete(now=cluster.now) or self._has_taken_over(), "in sync")
        self._note(event)
        match event:
            case "kill server" | "kill server in sync" if cluster.server_up:
                cluster.kill_server()
            case "restore server" if not cluster.server_up:
                cluster.restore_server()
            case "restart worker":
                self.killed.append(cluster.workers[0])
                cluster.restart_worker(0)
                cluster.workers[0].gradient = _into(0)
            case "checkpoint" if cluster.server_up:
                cluster.save()
            case "fill disk":  # workers with little room let go of pushes while no checkpoint can be written
                cluster.disk_full = self.world.resend_pushes == 10_000
            case "empty disk":
                cluster.disk_full = False
            case "join" if len(cluster.workers) < 8:
                joined = cluster.add_worker(f"w{len(cluster.workers)}")
                joined.gradient = _into(len(cluster.workers))
                cluster.workers.append(joined)
            case "network":
                cluster.network.faults = self._drawn_faults()
            case "pause server in sync" if isinstance(cluster, SimulatedPair):
                cluster.pause()

    def _heal(self) -> None:
        cluster = self.cluster
        self._note("heal")
        cluster.network.faults, cluster.disk_full = Faults(), False
        if isinstance(cluster, SimulatedPair):
            self._heal_pair(cluster)
        elif not cluster.server_up:
            cluster.restore_server()
        for worker in cluster.workers:
            worker.updates = worker.made
        self._pass(REJOIN_SECONDS)
        self._until(self._all_have_left, "live")
        assert [worker.error for worker in cluster.workers] == [None] * len(cluster.workers)

    def _heal_pair(self, pair: SimulatedPair) -> None:
        """A standby that lacks something does not take over; then somebody starts the primary again."""
        resumed_at = pair.now + RESUMED_SECONDS
        is_in_sync = self.world.events[-1][1] != "kill server"
        self._until(lambda: self._has_taken_over() or (pair.now > resumed_at and not is_in_sync), "taken over, or not")
        if pair.is_paused:
            pair.go_on()
            self._pass(3.0)
        if self._has_taken_over():
            pair.promote()
        else:
            pair.restore_server()

    def _has_taken_over(self) -> bool:
        """A standby that hears nothing of its primary for a second does so: a bad network suffices."""
        return isinstance(self.cluster, SimulatedPair) and self.cluster.standby.server is not None

    def _all_have_left(self) -> bool:
        """Workers leave when their pushes are acknowledged: under ssp nobody waits for one that has left."""
        for worker in self.cluster.workers:
            worker.alive = worker.alive and not worker.finished
        return not any(worker.alive for worker in self.cluster.workers)

    def _is_exact(self) -> bool:
        self._check_nothing_is_doubled()
        lost = self.cluster.lost()
        return not lost[:UNCERTAIN].any() and (bool(self.killed) or lost[UNCERTAIN] == 0)

    def _check_nothing_is_doubled(self) -> None:
        if self.cluster.server.run is None or self.cluster.server.run.store is None:
            return
        made = sum(worker.total for worker in (*self.cluster.workers, *self.killed))
        assert all(-self.cluster.weights() <= made), f"applied {-self.cluster.weights()}, made {made}"

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.run_until(condition, within_seconds=LIVE_SECONDS)
        self._note(what)

    def _pass(self, seconds: float) -> None:
        end = self.cluster.now + seconds
        while self.cluster.now < end:
            self.cluster.step()
            self._check_nothing_is_doubled()

    def _drawn_faults(self) -> Faults:
        chance = self._chance
        return Faults(
            drop=chance.choice([0.0, 0.05, 0.3]),
            duplicate=chance.choice([0.0, 0.3]),
            longest_delay_seconds=chance.choice([0.0, 0.4]),
        )

    def _note(self, event: str) -> None:
        cluster = self.cluster
        members = " ".join(f"{worker.worker_id}:{worker.acknowledged}/{worker.made}" for worker in cluster.workers)
        self.table.append(f"{cluster.now - self.began:8.2f} {event:28} {cluster.server!r:60} {members}")


def _into(number: int) -> Gradient:
    """Integers into the weight of this worker, and nothing into the others."""
    weight, values = UNCERTAIN if number == 0 else number % UNCERTAIN, itertools.cycle([1, 2, 4, 8, 16])
    return lambda weights: np.eye(3, dtype=np.float32)[weight] * next(values)


def failure_of(world: World) -> str:
    """How this world breaks a guarantee; "" if it does not."""
    try:
        Played(world).play()
    except AssertionError as error:
        return str(error) or "an assertion of a machine or of a worker"
    return ""


def shrunk(world: World) -> World:
    """The smallest world that still fails and is this one with fewer workers and events."""
    values = {field.name: getattr(world, field.name) for field in fields(world)}
    smaller = [World(**values | {"workers": world.workers - 1})] if world.workers > 1 else []
    for at in range(len(world.events) - world.has_standby):  # the takeover of a pair stays
        smaller.append(World(**values | {"events": world.events[:at] + world.events[at + 1 :]}))
    return next((shrunk(one) for one in smaller if failure_of(one)), world)


def _searched(seed: int) -> tuple[int, float, str]:
    played = Played(drawn(seed))
    try:
        return seed, played.play(), ""
    except AssertionError as error:
        return seed, played.cluster.now - played.began, str(error) or "an assertion of a machine or of a worker"


def search(minutes: float, first: int) -> int:
    """Play the worlds from this seed on, with all cores, until one fails or the time is over. Returns how it ended."""
    torch.set_num_threads(1)
    begun, worlds, hours, kinds = time.monotonic(), 0, 0.0, Counter[str]()
    with multiprocessing.Pool() as pool:
        for seed, seconds, failure in pool.imap(_searched, itertools.count(first)):
            if failure:
                commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
                print(f"SEED={seed} at {commit}: {failure}\nshrunk: {shrunk(drawn(seed))}")
                return 1
            world, worlds, hours = drawn(seed), worlds + 1, hours + seconds / 3600
            kinds.update({world.rule, "pair" if world.has_standby else "single", *(kind for _, kind in world.events)})
            if time.monotonic() - begun > 60 * minutes:
                break
    speed = worlds / (time.monotonic() - begun)
    print(f"{worlds} worlds from {first} on, {speed:.1f} a second, {hours:.1f} simulated hours; shares of worlds:")
    print(", ".join(f"{kind} {100 * count / worlds:.0f} %" for kind, count in kinds.most_common()))
    return 0


def main() -> int:
    if "SEED" not in os.environ:
        return search(float(os.environ.get("MINUTES", 1)), int(os.environ.get("FIRST", 0)))
    played = Played(drawn(int(os.environ["SEED"])))
    print(played.world)
    try:
        played.play()
    finally:
        print("\n".join(played.table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
