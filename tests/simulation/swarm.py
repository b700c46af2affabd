"""
A whole world from one integer: a server, alone or with a standby, its workers, their network, its disk, and what
befalls them.

A world has two phases. While the faults last nothing may be applied twice, each worker gets the weights that were
served, and each server keeps its invariants. Then everything is healed, and the world must be live (each worker has all
its pushes acknowledged within a bound of simulated seconds) and exact (the weights are the sum of all pushes, once
each, in integers, by worker process).

`make swarm SEED=7` plays one world and prints a table of its events; `make swarm MINUTES=10 FIRST=1000` searches from
that seed on, with all cores.
"""

import itertools
import logging
import multiprocessing
import os
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from ps_common.protocol.messages import Adjust
from ps_server.machine.consistency import ConsistencyGate
from ps_server.machine.phases import Phase
from ps_server.state.training_run import TrainingRun
from tests.simulation.cluster import Faults, ones
from tests.simulation.swarm_cluster import PROCESSES, PUSH_BYTES, WorldPair, WorldSingle, WorldWorker, checked_next
from tests.simulation.swarm_shards import PlayedShards
from tests.simulation.worlds import World, check_bounds, drawn, drawn_faults, kinds_of

LIVE_SECONDS = 180.0  # for a healed world to settle every push
REJOIN_SECONDS = 20.0  # until nobody leaves: acknowledged pushes that the server has lost are sent again meanwhile
RESUMED_SECONDS = 30.0  # without a server, after which somebody starts a primary again
FIRM_SECONDS = 2.0  # for which an exact world stays as it is: late messages change nothing


Cluster = WorldSingle | WorldPair


class Played:
    """One world while it is played. `tamper` is called once before the world is healed: a test breaks something."""

    def __init__(self, world: World, *, tamper: Callable[[Cluster], None] = lambda _: None) -> None:
        self.world, self._tamper = world, tamper
        self._chance = random.Random(world.seed + 1)
        self.table: list[str] = []  # one line an event
        kind = WorldPair if world.has_standby else WorldSingle
        self.cluster: Cluster = kind(
            chance=random.Random(world.seed + 2),
            gradient_codecs=world.gradient_codecs,
            weight_kinds=world.weight_kinds,
            workers=world.workers,
            updates=10**6,
            seed=world.seed,
            faults=drawn_faults(self._chance),
            gradient=ones,
            settings=world.settings,
            resend_bytes=world.resend_pushes * PUSH_BYTES,
            in_flight=world.in_flight,
            pulls=world.pulls,
            receive_bytes=world.receive_bytes,
            checkpoint_seconds=world.checkpoint_seconds,
            checkpoint_takes_seconds=world.checkpoint_takes_seconds,
        )
        self.began = self.cluster.now
        self._still: list[WorldWorker] = []  # workers that stand still

    @property
    def seconds(self) -> float:
        """How long it has lasted, simulated."""
        return self.cluster.now - self.began

    def play(self) -> None:
        """Play it to its end. Raises AssertionError when a guarantee is broken."""
        settle = self.cluster.remembering(TrainingRun.settle)
        with (
            mock.patch.object(ConsistencyGate, "next", checked_next),
            mock.patch.object(TrainingRun, "settle", settle),
            tempfile.TemporaryDirectory() as folder,
        ):
            self.cluster.folder = Path(folder) if self.world.has_files else None
            self._play()

    def _play(self) -> None:
        cluster = self.cluster
        self._until(lambda: cluster.checkpoint is not None, "saved at first")
        if isinstance(cluster, WorldPair):
            soon = cluster.now + 10.0  # on the worst networks a standby is never in sync
            self._until(lambda: cluster.standby.is_complete(now=cluster.now) or cluster.now > soon, "in sync, or not")
        for seconds, event in self.world.events:
            self._pass(seconds)
            self._do(event)
        self._tamper(cluster)
        self._heal()
        self._until(self._is_exact, "exact")

    def _do(self, event: str) -> None:
        cluster = self.cluster
        if isinstance(cluster, WorldPair) and event.endswith("in sync"):
            self._calm()
            self._until(lambda: cluster.standby.is_complete(now=cluster.now) or self._has_taken_over(), "in sync")
        self._note(event)
        match event:
            case "kill server" | "kill server in sync" if cluster.server_up:
                cluster.kill_server()
            case "stop server" if cluster.server_up:
                cluster.save()
                self._pass(self.world.checkpoint_takes_seconds + 0.1)
                cluster.kill_server()
            case "pause server in sync" if isinstance(cluster, WorldPair):
                cluster.pause()
            case "hand over in sync" if isinstance(cluster, WorldPair) and not self._has_taken_over():
                cluster.ask_to_leave()
                self._until(lambda: cluster.exited, "exited")
                if not cluster.server.ending.fenced:
                    cluster.save()
                    self._pass(self.world.checkpoint_takes_seconds + 0.1)
                cluster.kill_server()
            case "restore server" if not cluster.server_up:
                cluster.restore_server()
            case "checkpoint" if cluster.server_up:
                cluster.save()
            case "fill disk":  # workers with little room let go of pushes while no checkpoint can be written
                cluster.disk_full = self.world.resend_pushes == 10_000
            case "empty disk":
                cluster.disk_full = False
            case "damage disk":
                cluster.damage()
            case "pause run" | "resume run":
                self._adjust(paused=event == "pause run")
            case "adjust":
                self._adjust(checkpoint_seconds=self._chance.choice([0.5, 2.0, 5.0]))
            case "network":
                cluster.network.faults = drawn_faults(self._chance)
            case "link":
                peer = self._chance.choice([*(one.worker_id for one in cluster.workers), "standby"])
                link = f">{peer}" if self._chance.random() < 0.5 else f"{peer}>"
                cluster.network.faults_of[link] = drawn_faults(
                    self._chance, worst=1.0 if not self.world.has_standby else 0.3
                )
            case _:
                self._do_to_workers(event)

    def _do_to_workers(self, event: str) -> None:
        cluster = self.cluster
        match event:
            case "restart worker":
                self._still = [worker for worker in self._still if worker is not cluster.workers[0]]
                cluster.restart_worker(0)
            case "worker leaves" if len(cluster.workers) > max(1, self.world.quorum):
                worker = cluster.workers.pop()
                cluster._do_worker(worker, worker.machine.leave("asked to leave", now=cluster.now)[1])
                worker.alive = False
                self._still = [one for one in self._still if one is not worker]
            case "worker stands still":
                worker = self._chance.choice(cluster.workers)
                worker.alive = False
                self._still.append(worker)
            case "workers go on":
                self._go_on()
            case "join" if len(cluster.workers) < 8:
                name = f"w{len({one.worker_id for one in cluster.processes})}"
                cluster.workers.append(cluster.add_worker(name))

    def _calm(self) -> None:
        self.cluster.network.faults = Faults()
        self.cluster.network.faults_of.clear()

    def _go_on(self) -> None:
        for worker in self._still:
            worker.alive = True
        self._still.clear()

    def _adjust(self, **settings: Any) -> None:
        cluster = self.cluster
        if cluster.server_up and not self._has_taken_over():
            cluster._receive(b"ps-ctl", Adjust(request=1, settings=settings), ())

    def _heal(self) -> None:
        cluster = self.cluster
        self._note("heal")
        self._calm()
        self._go_on()
        cluster.disk_full = False
        if isinstance(cluster, WorldPair):
            self._heal_pair(cluster)
        elif not cluster.server_up:
            cluster.restore_server()
        cluster._receive(b"ps-ctl", Adjust(request=1, settings={"paused": False}), ())
        for worker in cluster.workers:
            worker.updates = worker.made
        joined_by = cluster.now + REJOIN_SECONDS
        while cluster.now < joined_by and not self._is_exact():
            self._step()
        self._pass(FIRM_SECONDS)
        self._until(self._all_have_left, "live")
        assert [worker.error for worker in cluster.workers] == [None] * len(cluster.workers)

    def _heal_pair(self, pair: WorldPair) -> None:
        """A standby that lacks something does not take over; then somebody starts the primary again."""
        resumed_at = pair.now + RESUMED_SECONDS
        self._until(
            lambda: self._has_taken_over() or (pair.now > resumed_at and not self._is_sure()), "taken over, or not"
        )
        if pair.is_paused:
            pair.go_on()
        if pair.server_up and self._has_taken_over():
            self._until(lambda: pair.server.phase is Phase.FENCED, "fenced")
        if self._has_taken_over():
            pair.promote()
        else:
            pair.restore_server()

    def _is_sure(self) -> bool:
        """Whether a standby in sync has to take over."""
        return self.world.events[-1][1].endswith("in sync")

    def _has_taken_over(self) -> bool:
        """A standby that hears nothing of its primary for a second does so: a bad network suffices."""
        return isinstance(self.cluster, WorldPair) and self.cluster.standby.server is not None

    def _all_have_left(self) -> bool:
        """Workers leave when their pushes are acknowledged: nobody waits for one that has left."""
        for worker in self.cluster.workers:
            worker.alive = worker.alive and not worker.finished
        return not any(worker.alive for worker in self.cluster.workers)

    def _is_exact(self) -> bool:
        """Of a process that has died, what was durable; what a damaged disk has lost, nobody has."""
        self._check_nothing_is_doubled()
        cluster = self.cluster
        if cluster.is_damaged or cluster.server.run is None:
            return cluster.is_damaged
        applied, living = self._applied(), {worker.own for worker in cluster.workers}
        keeps_durable = not self.world.has_standby or self._is_sure()
        return all(
            applied[one.own] == one.total[one.own]
            if one.own in living
            else not keeps_durable or applied[one.own] >= one.made_through(one.durable)
            for one in cluster.processes
        )

    def _check_nothing_is_doubled(self) -> None:
        if self.cluster.server.run is None or self.cluster.server.run.store is None:
            return
        applied = self._applied()
        for one in self.cluster.processes:
            assert 0 <= applied[one.own] <= one.total[one.own], f"applied {applied}, {one.worker_id} made {one.total}"

    def _applied(self) -> np.ndarray:
        """The sum of each process's pushes, from the statistics; from the weights too where pushes have no mean."""
        weights, sums = -self.cluster.weights()[:PROCESSES], self.cluster.weights()[PROCESSES:]
        assert self.world.rule in ("paced", "sync") or np.array_equal(weights, sums), f"{weights} and {sums} differ"
        return sums

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.run_until(condition, within_seconds=LIVE_SECONDS)
        self._note(what)

    def _step(self) -> None:
        check_bounds(self.seconds, self.cluster.network.carried)
        self.cluster.step()

    def _pass(self, seconds: float) -> None:
        end = self.cluster.now + seconds
        while self.cluster.now < end:
            self._step()
            self._check_nothing_is_doubled()

    def _note(self, event: str) -> None:
        cluster = self.cluster
        members = " ".join(f"{worker.worker_id}:{worker.acknowledged}/{worker.made}" for worker in cluster.workers)
        self.table.append(f"{cluster.now - self.began:8.2f} {event:28} {cluster.server!r:60} {members}")


def played_of(world: World) -> Played | PlayedShards:
    """What plays this world."""
    return PlayedShards(world) if world.shards > 1 else Played(world)


def outcome_of(world: World) -> tuple[float, str]:
    """The simulated seconds that it lasted, and how it breaks a guarantee; "" if it does not."""
    played = played_of(world)
    try:
        played.play()
    except Exception as error:  # an exception of a machine would end its program
        story = str(error) if isinstance(error, AssertionError) else repr(error)
        return played.seconds, story or "an assertion of a machine or of a worker"
    return played.seconds, ""


def failure_of(world: World) -> str:
    """How this world breaks a guarantee; "" if it does not."""
    return outcome_of(world)[1]


def shrunk(world: World) -> World:
    """The smallest world that still fails and is this one with fewer workers and events."""
    values = {field.name: getattr(world, field.name) for field in fields(world)}
    smaller = [World(**values | {"workers": world.workers - 1})] if world.workers > 1 else []
    for at in range(len(world.events) - world.has_standby):  # the takeover of a pair stays
        smaller.append(World(**values | {"events": world.events[:at] + world.events[at + 1 :]}))
    return next((shrunk(one) for one in smaller if failure_of(one)), world)


def _searched(seed: int) -> tuple[int, float, str]:
    return seed, *outcome_of(drawn(seed))


def search(minutes: float, first: int) -> int:
    """Play the worlds from this seed on, with all cores, until one fails or the time is over. Returns how it ended."""
    torch.set_num_threads(1)
    logging.disable()
    begun, worlds, hours, kinds = time.monotonic(), 0, 0.0, Counter[str]()
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for seed, seconds, failure in pool.imap(_searched, itertools.count(first)):
            if failure:
                commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
                print(f"SEED={seed} at {commit}: {failure}", flush=True)
                print(f"shrunk: {shrunk(drawn(seed))}")
                return 1
            world, worlds, hours = drawn(seed), worlds + 1, hours + seconds / 3600
            kinds.update(kinds_of(world))
            if time.monotonic() - begun > 60 * minutes:
                break
    speed = worlds / (time.monotonic() - begun)
    print(f"{worlds} worlds from {first} on, {speed:.1f} a second, {hours:.1f} simulated hours; shares of worlds:")
    print(", ".join(f"{kind} {100 * count / worlds:.0f} %" for kind, count in kinds.most_common()))
    return 0


def main() -> int:
    if "SEED" not in os.environ:
        return search(float(os.environ.get("MINUTES", 1)), int(os.environ.get("FIRST", 0)))
    played = played_of(drawn(int(os.environ["SEED"])))
    print(played.world)
    try:
        played.play()
    finally:
        print("\n".join(played.table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
