"""
A whole world from one integer: the servers of a run, one or a few shards, each alone or with a standby, their workers,
networks and disks, and what befalls them.

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
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.protocol.messages import Adjust, Push
from ps_common.release import release
from ps_server.machine.consistency import ConsistencyGate
from ps_server.machine.ending import Phase
from ps_server.state.training_run import TrainingRun
from tests.simulation.cluster import Faults, ones
from tests.simulation.liars import LIES, Liar
from tests.simulation.swarm_cluster import PUSH_BYTES, Versions, WorldPair, WorldSingle, checked_next, remembering
from tests.simulation.worlds import ALONE, FILES, LAST, WIRE, World, check_bounds, drawn, drawn_faults, kinds_of

LIVE_SECONDS = 180.0  # for a healed world to settle every push
REJOIN_SECONDS = 20.0  # until nobody leaves: acknowledged pushes that the server has lost are sent again meanwhile
RESUMED_SECONDS = 30.0  # without a server, after which somebody starts a primary again
WELL_SECONDS = 3.0  # before a wire breaks: all workers are served by the primary
ALONE_SECONDS = 4.0  # after it, until the primary goes on alone for sure
RENEWED_SECONDS = 1.0  # for which the promise to a standby in sync holds at least: replies are under way for less
BLINK_SECONDS = 3.0  # for which a worker does not see the primary: it asks the standby
FIRM_SECONDS = 2.0  # for which an exact world stays as it is: late messages change nothing


Cluster = WorldSingle | WorldPair


class Played:
    """One world while it is played. `tamper` is called once before the world is healed: a test breaks something."""

    def __init__(self, world: World, *, tamper: Callable[[Cluster], None] = lambda _: None) -> None:
        self.world, self._tamper = world, tamper
        self._chance = random.Random(world.seed + 1)
        self._versions: Versions = {}
        self._liars = 0
        self.table: list[str] = []  # one line an event
        self.happened: set[str] = set()  # the events that had an effect
        self.clusters = [self._cluster(number) for number in range(1, world.shards + 1)]  # one a shard
        for other in self.clusters[1:]:
            other.follow_shard_1(self.clusters[0])
        self._join_parts()
        self.began = self.now

    def _cluster(self, number: int) -> Cluster:
        world = self.world
        addresses = [f"s{at}:1,s{at}:2" if has else f"s{at}:1" for at, has in enumerate(world.standbys, 1)]
        kind = WorldPair if world.standbys[number - 1] else WorldSingle
        return kind(
            chance=random.Random(world.seed + 2 + 1000 * number),
            versions=self._versions,
            shard=Shard(number=number, addresses=tuple(addresses)) if world.shards > 1 else WHOLE,
            gradient_codecs=world.gradient_codecs,
            weight_kinds=world.weight_kinds,
            workers=world.workers,
            updates=10**6,
            seed=world.seed + 1000 * number,
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

    def _join_parts(self) -> None:
        """The workers of one place in the lists of all shards are parts of one process."""
        for parts in zip(*(cluster.workers for cluster in self.clusters), strict=True):
            for part in parts:
                part.parts = list(parts)
                part.machine.links_elsewhere = [other.machine.link_timeout for other in parts if other is not part]

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.clusters[0].now

    @property
    def seconds(self) -> float:
        """How long it has lasted, simulated."""
        return self.now - self.began

    @property
    def _pairs(self) -> list[WorldPair]:
        return [cluster for cluster in self.clusters if isinstance(cluster, WorldPair)]

    @property
    def _singles(self) -> list[WorldSingle]:
        return [cluster for cluster in self.clusters if isinstance(cluster, WorldSingle)]

    def play(self) -> None:
        """Play it to its end. Raises AssertionError when a guarantee is broken."""
        with self.prepared():
            self._play()

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """With its disks, and with what is checked inside of the servers."""
        settle = remembering(TrainingRun.settle, self._versions)
        with (
            mock.patch.object(ConsistencyGate, "next", checked_next),
            mock.patch.object(TrainingRun, "settle", settle),
            mock.patch.object(os, "fsync", return_value=None),
            tempfile.TemporaryDirectory() as folder,
        ):
            for number, cluster in enumerate(self.clusters, 1):
                cluster.folder = Path(folder, str(number)) if self.world.has_files else None
                Path(folder, str(number)).mkdir()
            yield

    def _play(self) -> None:
        self.until(lambda: all(cluster.checkpoint is not None for cluster in self.clusters), "saved at first")
        soon = self.now + 10.0  # on the worst networks a standby is never in sync
        self.until(
            lambda: all(pair.standby.holds_every_durable_push(now=pair.now) for pair in self._pairs) or self.now > soon,
            "in sync, or not",
        )
        for seconds, event in self.world.events:
            self._pass(seconds)
            if event.endswith("in sync"):
                self._mends_wires()
                self.calm()
                self.until(self._are_in_sync, "in sync")
            self._note(event)
            if self._does(event):
                self.happened.add(event)
        self._tamper(self.clusters[-1])
        self._heal()
        self.until(self._is_exact, "exact")

    def _are_in_sync(self) -> bool:
        """
        A promise that is about to run out does not count: a worker may be served after that. Neither does that of a
        primary which has dropped the standby meanwhile.
        """
        return all(
            pair.has_taken_over
            or (
                pair.server.replication.address
                and pair.standby.holds_every_durable_push(now=pair.now + RENEWED_SECONDS)
            )
            for pair in self._pairs
        )

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def _does(self, event: str) -> bool:
        """Whether this event had an effect."""
        if event in LAST:
            return self._ends_primary(self._chance.choice(self._pairs), event)
        if event in WIRE:
            return self._breaks_wire() if event == WIRE[0] else self._mends_wires()
        if event in (*ALONE, *FILES):
            return self._befalls_server(self._chance.choice(self._singles), event)
        cluster = self._chance.choice(self.clusters)
        match event:
            case "checkpoint" if cluster.server_up:
                cluster.save()
            case "pause run" | "resume run":
                return self._adjusts(paused=event == "pause run")
            case "adjust":
                return self._adjusts(checkpoint_seconds=self._chance.choice([0.5, 2.0, 5.0]))
            case "network":
                cluster.network.faults = drawn_faults(self._chance)
            case "link":
                peer = self._chance.choice([*(one.worker_id for one in cluster.workers), "standby"])
                link = f">{peer}" if self._chance.random() < 0.5 else f"{peer}>"
                worst = 0.3 if isinstance(cluster, WorldPair) else 1.0
                cluster.network.faults_of[link] = drawn_faults(self._chance, worst=worst)
            case "a liar speaks" if cluster.server.run is not None:
                self._liars += 1
                lie = self._chance.choice(list(LIES))
                self.happened.add(f"a liar {lie}")
                for frames in LIES[lie](Liar(f"liar{self._liars}", cluster, self._chance)):
                    deliver = partial(cluster._to_server, f"liar{self._liars}/1/1".encode(), frames)
                    cluster.network.carry(deliver, link="liar>", now=cluster.now)
            case _:
                return self._befalls_workers(event)
        return True

    def _befalls_server(self, cluster: WorldSingle, event: str) -> bool:
        match event:
            case "kill server" if cluster.server_up:
                cluster.kill_server()
            case "stop server" if cluster.server_up:
                cluster.ask_to_leave()
                cluster.stop_server()
                self._pass(self.world.checkpoint_takes_seconds)
            case "restore server" if not cluster.server_up:
                cluster.restore_server()
            # Workers with little room let go of pushes while no checkpoint can be written.
            case "fill or empty disk" if self.world.resend_pushes == 10_000:
                cluster.disk_full = not cluster.disk_full
            case "damage disk":
                return cluster.damage()
            case _:
                return False
        return True

    def _ends_primary(self, pair: WorldPair, event: str) -> bool:
        pair.last = event
        match event:
            case "kill primary" | "kill primary in sync":
                pair.kill_server()
            case "pause primary in sync":
                pair.pause()
            case "hand over in sync" if not pair.has_taken_over:
                pair.ask_to_leave()
                self.until(lambda: pair.exited, "exited")
                pair.stop_server()
            case _:
                return False
        return True

    def _breaks_wire(self) -> bool:
        """
        The two servers of a pair lose sight of each other, while every worker reaches both, for so long that the
        primary goes on alone. Meanwhile a newcomer asks the standby; then one that was served, for the moment in which
        the primary does not reply to it.
        """
        pair = self._chance.choice(self._pairs)
        if pair.has_taken_over:
            return False
        self.calm()
        self.until(self._are_in_sync, "in sync")
        self._pass(WELL_SECONDS)  # workers that were at the standby are back
        if pair.has_taken_over:
            return False
        pair.link_is_cut = True
        soon = self._chance.uniform(0.0, ALONE_SECONDS)
        self._pass(soon)
        self._befalls_workers(self._chance.choice(["join", "restart worker"]))
        self._pass(ALONE_SECONDS - soon)
        if self._chance.random() < 0.5:
            pair.sees_no_primary = {self._chance.choice(pair.workers).worker_id}
            self._pass(BLINK_SECONDS)
            pair.sees_no_primary = set()
        return True

    def _mends_wires(self) -> bool:
        cut = [pair for pair in self._pairs if pair.link_is_cut]
        for pair in cut:
            pair.link_is_cut = False
        return cut != []

    def _befalls_workers(self, event: str) -> bool:
        first, at = self.clusters[0], self._chance.randrange(len(self.clusters[0].workers))
        parts = first.workers[at].parts
        match event:
            case "restart worker":
                for cluster in self.clusters:
                    cluster.restart_worker(at)
            case "worker leaves" if len(first.workers) > max(1, self.world.quorum):
                for cluster in self.clusters:
                    worker = cluster.workers.pop(at)
                    cluster._do_worker(worker, worker.machine.leave("asked to leave", now=cluster.now)[1])
                    worker.alive = False
            case "worker stands still":
                for part in parts:
                    part.alive, part.stands_still = False, True
            case "trainer hangs":
                for part in parts:
                    part.stalled = True
            case "workers go on" if any(worker.stands_still or worker.stalled for worker in first.workers):
                self._go_on()
            case "join" if len(first.workers) < 8:
                name = f"w{len({one.worker_id for one in first.processes})}"
                for cluster in self.clusters:
                    cluster.workers.append(cluster._new_worker(name, process=1))
            case _:
                return False
        self._join_parts()
        return True

    def calm(self) -> None:
        for cluster in self.clusters:
            cluster.network.faults = Faults()
            cluster.network.faults_of.clear()

    def _go_on(self) -> None:
        for cluster in self.clusters:
            for worker in cluster.workers:
                if worker.stands_still:
                    worker.machine.was_away(0.0, cluster.now)  # the clock of a simulation stands still for nobody
                worker.alive, worker.stands_still, worker.stalled = worker.alive or worker.stands_still, False, False

    def _adjusts(self, **settings: Any) -> bool:
        first = self.clusters[0]
        if not first.server_up or (isinstance(first, WorldPair) and first.has_taken_over):
            return False
        first._receive(b"ps-ctl", Adjust(request=1, settings=settings), ())
        return True

    # -- how it ends --------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self._note("heal")
        self._mends_wires()
        self.calm()
        self._go_on()
        for single in self._singles:
            single.disk_full = False
            if not single.server_up:
                single.restore_server()
        for pair in self._pairs:
            self._await_takeover(pair)
        self._pass(FIRM_SECONDS)  # a standby that had heard nothing before the calm takes over, too
        for pair in self._pairs:
            self._heal_pair(pair)
        self.clusters[0]._receive(b"ps-ctl", Adjust(request=1, settings={"paused": False}), ())
        for process in self.clusters[0].workers:
            for part in process.parts:
                part.updates = max(one.made for one in process.parts)
        self.until(self._are_back, "back")  # else a quorum might never be there again
        joined_by = self.now + REJOIN_SECONDS
        while self.now < joined_by and not self._is_exact():
            self._step()
        self._pass(FIRM_SECONDS)
        self.until(self._all_have_left, "live")
        errors = [worker.error for cluster in self.clusters for worker in cluster.workers if worker.error]
        assert not errors, f"{errors}"

    def _await_takeover(self, pair: WorldPair) -> None:
        """
        After the end of its primary. A standby that lacks something is promoted by nobody; one that is in sync by any
        worker that was served, and where there is none by an admin.
        """
        resumed_at, is_sure = pair.now + RESUMED_SECONDS, pair.last.endswith("in sync")
        if not pair.last:
            return
        may_wait = is_sure and pair.has_witness
        self.until(lambda: pair.has_taken_over or (pair.now > resumed_at and not may_wait), "taken over, or not")
        if is_sure and not pair.has_taken_over:
            pair.promote_by_admin("nobody is left that the primary has served")

    def _heal_pair(self, pair: WorldPair) -> None:
        """The successor stands for the pair; where there is none, somebody starts the primary again."""
        if pair.is_paused:
            pair.go_on()
        if pair.has_taken_over:
            if pair.server_up:
                self.until(lambda: pair.server.phase is Phase.FENCED, "fenced")
            pair.promote()
        elif not pair.server_up:
            pair.restore_server()

    def _are_back(self) -> bool:
        workers = [worker for cluster in self.clusters for worker in cluster.workers]
        return all(worker.machine.phase.name != "JOINING" for worker in workers)

    def _all_have_left(self) -> bool:
        """Workers leave when their pushes are settled, lost ones again: nobody waits for one that has left."""
        processes = [worker.parts for worker in self.clusters[0].workers]
        for parts in processes:
            if all(part.finished and not part.machine._requests.has(Push) for part in parts):
                for part in parts:
                    part.alive = False
        return not any(part.alive for parts in processes for part in parts)

    def _is_exact(self) -> bool:
        return all(map(self._is_exact_at, self.clusters))

    def _is_exact_at(self, cluster: Cluster) -> bool:
        """Of a process that has died, what was durable. What a disk has lost, or a log calls lost, nobody has."""
        self._check_nothing_is_doubled(cluster)
        if cluster.is_damaged or cluster.server.run is None:
            return cluster.is_damaged
        applied, living = cluster.applied(), {worker.own for worker in cluster.workers}
        return all(
            applied[one.own] == one.total[one.own] or cluster.has_told_loss(one.worker_id)
            if one.own in living
            else not cluster.keeps_durable or applied[one.own] >= one.made_through(one.durable)
            for one in cluster.processes
        )

    def _check_nothing_is_doubled(self, cluster: Cluster) -> None:
        if cluster.server.run is None or cluster.server.run.store is None:
            return
        applied = cluster.applied()
        for one in cluster.processes:
            assert 0 <= applied[one.own] <= one.total[one.own], f"applied {applied}, {one.worker_id} made {one.total}"

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = self.now + LIVE_SECONDS
        while not condition():
            assert self.now < deadline, f"not {what} within {LIVE_SECONDS} simulated seconds: {self._state()}"
            self._step()
        self._note(what)

    def _pass(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self._step()
            for cluster in self.clusters:
                self._check_nothing_is_doubled(cluster)

    def _step(self) -> None:
        check_bounds(self.seconds, sum(cluster.network.carried for cluster in self.clusters))
        for cluster in self.clusters:
            cluster.step()

    def _state(self) -> str:
        return "; ".join(f"{cluster.server} {cluster.workers}" for cluster in self.clusters)

    def _note(self, event: str) -> None:
        servers = " ".join(repr(cluster.server) for cluster in self.clusters)
        members = " ".join(
            f"{worker.worker_id}:{'+'.join(str(part.acknowledged) for part in worker.parts)}/{worker.made}"
            for worker in self.clusters[0].workers
        )
        self.table.append(f"{self.seconds:8.2f} {event:28} {servers:60} {members}")


def outcome_of(world: World) -> tuple[float, set[str], str]:
    """The simulated seconds that it lasted, what has happened, and how it breaks a guarantee; "" if it does not."""
    played = Played(world)
    try:
        played.play()
    except Exception as error:  # an exception of a machine would end its program
        story = str(error) if isinstance(error, AssertionError) else repr(error)
        return played.seconds, played.happened, story or "an assertion of a machine or of a worker"
    return played.seconds, played.happened, ""


def failure_of(world: World) -> str:
    """How this world breaks a guarantee; "" if it does not."""
    return outcome_of(world)[2]


def shrunk(world: World) -> World:
    """The smallest world that still fails and is this one with fewer workers and events."""
    values = {field.name: getattr(world, field.name) for field in fields(world)}
    fewer = {"workers": world.workers - 1, "quorum": min(world.quorum, world.workers - 1)}
    smaller = [World(**values | fewer)] if world.workers > 1 else []
    for at in range(len(world.events) - any(world.standbys)):  # the takeover of a pair stays
        smaller.append(World(**values | {"events": world.events[:at] + world.events[at + 1 :]}))
    return next((shrunk(one) for one in smaller if failure_of(one)), world)


def _searched(seed: int) -> tuple[int, float, set[str], str]:
    return seed, *outcome_of(drawn(seed))


def search(minutes: float, first: int) -> int:
    """Play the worlds from this seed on, with all cores, until one fails or the time is over. Returns how it ended."""
    torch.set_num_threads(1)
    logging.disable()
    begun, worlds, hours, kinds = time.monotonic(), 0, 0.0, Counter[str]()
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for seed, seconds, happened, failure in pool.imap(_searched, itertools.count(first)):
            if failure:
                print(f"SEED={seed} at {release()}: {failure}", flush=True)
                print(f"shrunk: {shrunk(drawn(seed))}")
                return 1
            world, worlds, hours = drawn(seed), worlds + 1, hours + seconds / 3600
            kinds.update(kinds_of(world) | happened)
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
