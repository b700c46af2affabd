"""
A world whose run has shards: they are killed one by one, each link and each disk fails by itself, and each worker
pushes to all of them. In the end the sum of all pushes is exact at each shard.
"""

import random
from typing import Any

import torch

from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import Wire
from tests.simulation.cluster import Faults
from tests.simulation.shards import SimulatedShards
from tests.simulation.worlds import World, check_bounds, drawn_faults

SCHEMA = Schema([TensorSpec("weights", (9,)), TensorSpec("sums", (6,), role="statistic")])  # sums by worker
DOWN_SECONDS = (0.05, 0.5, 3.0)  # of a shard that was killed
LEAST_ROUNDS, MOST_ROUNDS = 5, 60  # in which each worker pushes once


class PlayedShards(SimulatedShards):
    """One world while it is played. Events come when their time has come, also while a worker waits for a reply."""

    def __init__(self, world: World) -> None:
        self.world, self._chance = world, random.Random(world.seed + 1)
        self.table: list[str] = []  # one line an event
        self._due: list[tuple[float, str]] = []
        self._down: dict[int, float] = {}  # until when, by index
        self._rounds = 0
        codecs: Any = (world.gradient_codecs[0], "delta" if "delta" in world.weight_kinds else "float32")
        super().__init__(
            SCHEMA,
            shards=world.shards,
            workers=world.workers,
            seed=world.seed,
            wire=Wire(prefetch=world.in_flight, gradient_codec=codecs[0], weight_codec=codecs[1]),
            settings=world.settings,
            faults=Faults(),
            receive_bytes=max(world.receive_bytes, 4 * SCHEMA.size),
            checkpoint_seconds=world.checkpoint_seconds,
            checkpoint_takes_seconds=world.checkpoint_takes_seconds,
        )
        self._began = self.clusters[0].now

    @property
    def seconds(self) -> float:
        """How long it has lasted, simulated."""
        return self.clusters[0].now - self._began

    def play(self) -> None:
        """Play it to its end. Raises AssertionError when a guarantee is broken."""
        self.seed(torch.zeros(SCHEMA.size))
        due = self.clusters[0].now
        for seconds, event in self.world.events:
            due += seconds
            self._due.append((due, event))
        while self._due or self._rounds < LEAST_ROUNDS:
            self._rounds += 1
            for worker in range(self.world.workers if self._rounds < MOST_ROUNDS else 0):
                gradient = torch.zeros(SCHEMA.size)
                gradient[: SCHEMA.weights] = gradient[SCHEMA.weights + worker] = float(2 ** (self._rounds % 5))
                self.push(worker, gradient)
            for _ in range(self._chance.randrange(1, 8)):
                self.step()
        self._heal()
        self.run_to_the_end()
        self._check_sums()

    def step(self) -> None:
        super().step()
        now, first = self.clusters[0].now, self.clusters[0]
        check_bounds(self.seconds, sum(shard.network.carried for shard in self.clusters))
        is_paused = first.server_up and first.server.run is not None and first.server.run.adjustments.paused
        if is_paused and "resume run" not in (event for _, event in self._due):
            self._due.insert(0, (now + 1.0, "resume run"))  # a kill has taken back that it was resumed
        for at, until in list(self._down.items()):
            if now >= until:
                self.clusters[at].restore_server()
                del self._down[at]
        while self._due and self._due[0][0] <= now:
            self._do(self._due.pop(0)[1])

    def _do(self, event: str) -> None:
        at = self._chance.randrange(len(self.clusters))
        shard = self.clusters[at]
        servers = " ".join(f"{one.server.version}{'' if one.server_up else ' (down)'}" for one in self.clusters)
        self.table.append(f"{self.seconds:8.2f} {event:20} shard {at + 1}   versions {servers}   made {self.made}")
        match event:
            case "kill server" if shard.server_up:
                shard.kill_server()
                self._down[at] = shard.now + self._chance.choice(DOWN_SECONDS)
            case "checkpoint" if shard.server_up:
                shard.save()
            case "network":
                shard.network.faults = drawn_faults(self._chance)
            case "link":
                worker = f"w{self._chance.randrange(self.world.workers)}"
                link = f">{worker}" if self._chance.random() < 0.5 else f"{worker}>"
                shard.network.faults_of[link] = drawn_faults(self._chance)
            case "fill disk" | "empty disk":
                shard.disk_full = event == "fill disk"
            case "adjust" if self.clusters[0].server_up:
                self.adjust({"checkpoint_seconds": self._chance.choice([0.5, 2.0, 5.0])})
            case "pause run" if self.clusters[0].server_up:
                self.adjust({"paused": True})
                self._due.insert(0, (shard.now + 1.0, "resume run"))
            case "resume run":
                self._resume()

    def _resume(self) -> None:
        if self.clusters[0].server_up:
            self.adjust({"paused": False})
        else:
            self._due.insert(0, (self.clusters[0].now + 1.0, "resume run"))

    def _heal(self) -> None:
        for at in list(self._down):
            self.clusters[at].restore_server()
            del self._down[at]
        for shard in self.clusters:
            shard.network.faults, shard.disk_full = Faults(), False
            shard.network.faults_of.clear()
        self.adjust({"paused": False})

    def _check_sums(self) -> None:
        whole, total = self.whole(), torch.stack(self.totals).sum(0)
        sums = slice(SCHEMA.weights, None)
        assert torch.equal(whole[sums], total[sums]), f"sums {whole[sums]}, made {total[sums]}"
        assert torch.equal(whole[: SCHEMA.weights], -total[: SCHEMA.weights]), f"{whole}, made {total}"
