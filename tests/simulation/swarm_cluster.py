"""
The cluster of a swarm's world: its workers look at all that they are given, and its disk has files.

Each worker process pushes integers into a weight of its own. So the sum is exact by process.
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ps_client.machine.effects import Effect
from ps_common.errors import CheckpointError
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import Buffer
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import WRITING, checkpoint_name
from ps_server.machine.consistency import ConsistencyGate, WaitingPush
from ps_server.machine.ending import Phase
from ps_server.machine.membership import Membership
from ps_server.machine.parameter_server import ParameterServer
from ps_server.state.effects import SaveCheckpoint
from ps_server.state.training_run import TrainingRun
from ps_server.storage.earlier_life import newest_checkpoint
from tests.simulation.cluster import SimulatedCluster, SimulatedWorker
from tests.simulation.pair import SimulatedPair

PROCESSES = 24  # the most that may be in a world
VECTOR_BYTES = 8 * PROCESSES  # of a whole gradient
PUSH_BYTES = VECTOR_BYTES + 1024
VALUES = (1, 2, 4, 8, 16)  # of the pushes of each process, again and again
KEPT_CHECKPOINTS = 3

Versions = dict[tuple[int, int, int], Tensor]  # the weights by shard, epoch and version


def schema_of(shard: int, shards: int) -> Schema:
    """
    One weight at each shard, and at the last one statistic, for each process.

    Where several pushes are one update, weights get the mean of their gradients, and statistics the sum.
    """
    weights, sums = TensorSpec("weights", (PROCESSES * shards,)), TensorSpec("sums", (PROCESSES,), role="statistic")
    return Schema([weights, sums]).of_shard(shard, shards)


@dataclass(repr=False)
class WorldWorker(SimulatedWorker):
    """
    A worker process, or the part of it that talks to one of several shards: each push goes to all of them.

    It pushes into the weight `own`, and compares weights that it gets with those of the server at that version.
    """

    own: int = 0
    weight_kind: str = "float32"  # float32, bfloat16, or delta: away from the newest bfloat16
    versions: Versions = field(default_factory=dict)  # of the world
    base: Base | None = None
    stands_still: bool = False  # it is not alive, and will be again
    parts: list["WorldWorker"] = field(default_factory=list)  # of the same process, this one among them

    def __post_init__(self) -> None:
        super().__post_init__()
        values, ones = itertools.cycle(VALUES), np.eye(PROCESSES, dtype=np.float32)
        self.gradient = lambda weights: np.tile(ones[self.own], self.schema.size // PROCESSES) * next(values)

    def push(self, *, now: float) -> list[Effect]:
        return super().push(now=now) if self.may_push else []

    @property
    def may_push(self) -> bool:
        """Whether fewer than `in_flight` of its pushes wait for the reply of any shard."""
        if self.stalled:
            return False
        slowest = min(part.acknowledged for part in self.parts)
        return self.made < min(self.updates, slowest + self.in_flight) and all(part.seen for part in self.parts)

    def next_call(self, reply: ToWorker | None, vector: Any, *, now: float) -> list[Effect]:
        if isinstance(reply, messages.Weights):
            if (served := self.versions.get((self.schema.shard, reply.epoch, reply.version))) is not None:
                is_served = _is_served(reply.codec, vector, served, self.schema)
                assert is_served, f"{self.worker_id} got other weights than were served"
            if reply.codec == "bfloat16":
                self.base = Base(b"".join(vector), self.schema.weights)
        return super().next_call(reply, vector, now=now)

    def weight_codec(self) -> str | Base:
        if self.weight_kind == "delta":
            return self.base or "bfloat16"
        return self.weight_kind

    def made_through(self, sequence: int) -> int:
        """The sum of its first so many pushes."""
        rounds, more = divmod(sequence, len(VALUES))
        return rounds * sum(VALUES) + sum(VALUES[:more])

    @property
    def durable(self) -> int:
        """The sequence up to which it was told that its pushes are durable."""
        return self.machine._requests.resend_buffer._durable


def _is_served(codec: str, told: Sequence[Buffer], served: Tensor, schema: Schema) -> bool:
    again = CODECS[codec].decode([CODECS[codec].encode(served, schema.statistics)], schema.size, schema.statistics)
    return bool(CODECS[codec].decode(told, schema.size, schema.statistics).equal(again))


def remembering(settle: Callable[..., Any], versions: Versions) -> Callable[..., Any]:
    """TrainingRun.settle, and the weights after it: the standby has the same as the primary."""

    def remember(run: TrainingRun, pushes: Any) -> Any:
        settled = settle(run, pushes)
        weights, version = run.weights.flat.clone(), run.weights.version
        known = versions.setdefault((run.lineage.shard.number, run.epoch, version), weights)
        assert known.equal(weights), f"two servers differ in version {version} of {run.epoch}"
        return settled

    return remember


class Watched:
    """What a world adds to a cluster. `folder` is that of the run's checkpoints; None: a disk that never fails."""

    server_tick_seconds = 0.25  # as of ps-server
    folder: Path | None = None
    workers: list[WorldWorker]
    server: ParameterServer
    lineage: Lineage
    now: float
    is_damaged = False  # what was durable may be gone from the disk
    keeps_durable = True  # what was durable is here

    def __init__(
        self,
        *,
        chance: random.Random,
        versions: Versions,
        gradient_codecs: Sequence[str],
        weight_kinds: Sequence[str],
        shard: Shard,
        **options: Any,
    ) -> None:
        """Processes take the codecs of their gradients and weights in turn. `versions` are those of the world."""
        self.chance, self._gradient_codecs, self._weight_kinds = chance, gradient_codecs, weight_kinds
        self._versions = versions
        self.schema = schema_of(shard.number, shard.of)
        self.processes: list[WorldWorker] = []
        super().__init__(worker=partial(WorldWorker, schema=self.schema), shard=shard, **options)

    def _new_worker(self, worker_id: str, *, process: int) -> WorldWorker:
        worker: WorldWorker = super()._new_worker(worker_id, process=process)
        worker.own, worker.versions = len(self.processes), self._versions
        worker.weight_kind = self._weight_kinds[worker.own % len(self._weight_kinds)]
        worker.codec = self._gradient_codecs[worker.own % len(self._gradient_codecs)]
        self.processes.append(worker)
        return worker

    def step(self) -> None:
        super().step()
        for worker in self.workers:
            while worker.alive and worker.may_push:  # another shard has replied
                self._do_worker(worker, worker.push(now=self.now))

    def applied(self) -> np.ndarray:
        """The sum of each process's pushes, from the statistics; from the weights too where pushes have no mean."""
        assert self.server.run is not None
        flat, has_mean = self.weights(), self.run.consistency.rule == "sync"
        weights, sums = -flat[:PROCESSES], flat[PROCESSES:]
        if self.schema.statistics:
            assert has_mean or np.array_equal(weights, sums), f"{weights} and {sums} differ"
            return sums
        return self._settled() if has_mean else weights

    def _settled(self) -> np.ndarray:
        """The sum of each process's pushes that the ledger knows; of those before, nothing is known."""
        assert self.server.run is not None
        sums = np.zeros(PROCESSES)
        for one in self.processes:
            account = self.server.run.ledger.accounts.get(one.worker_id)
            is_known = account is not None and account.proof == one.proof
            sums[one.own] = one.made_through(account.through if account and is_known else one.durable)
        return sums

    def has_told_loss(self, worker_id: str) -> bool:
        """Whether the log says that pushes of this worker are lost, which its own server called durable."""
        return False

    def restore_server(self) -> None:
        super().restore_server()
        self.exited = False

    # -- the disk -----------------------------------------------------------------------------------------------------

    def kill_server(self) -> None:
        """A checkpoint that was being written is torn at any byte."""
        writing: tuple[float, SaveCheckpoint] | None = self._writing
        if self.folder is not None and writing is not None:
            torn = self.folder / checkpoint_name(writing[1].global_steps, writing[1].record.version)
            if torn.exists():  # it is replaced when the new one is whole, not before
                torn = self.folder / WRITING / torn.name
            write_checkpoint(self.folder / "whole", writing[1].vectors, writing[1].record)
            content = (self.folder / "whole").read_bytes()
            (self.folder / "whole").unlink()
            torn.parent.mkdir(exist_ok=True)
            torn.write_bytes(content[: self.chance.randrange(len(content))])
        super().kill_server()

    def stop_server(self) -> None:
        """As the shell does after Exit: nobody is served while the last checkpoint is written."""
        assert self.exited
        if not self.server.ending.fenced and self._writing is None:
            self.save()
        if self._writing is not None:
            self._writing = (self.now, self._writing[1])
            self._finish_writing()
        self.kill_server()

    def damage(self) -> bool:
        """The newest of several checkpoints is gone, or a bit of it flips. False where there are not several."""
        paths = [path for path in newest_first(self.folder) if _is_verified(path)] if self.folder is not None else []
        if len(paths) < 2 or self.is_damaged:
            return False
        self.is_damaged = True
        if self.chance.random() < 0.5:
            paths[0].unlink()
            return True
        content = bytearray(paths[0].read_bytes())
        content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
        paths[0].write_bytes(content)
        return True

    def _store(self, checkpoint: SaveCheckpoint) -> None:
        super()._store(checkpoint)
        if self.folder is not None:
            write_checkpoint(
                self.folder / checkpoint_name(checkpoint.global_steps, checkpoint.record.version),
                checkpoint.vectors,
                checkpoint.record,
            )
            for path in newest_first(self.folder)[KEPT_CHECKPOINTS:]:
                path.unlink()

    def _stored(self) -> SaveCheckpoint | None:
        if self.folder is None or not newest_first(self.folder):
            return super()._stored()
        _, vectors, record = newest_checkpoint(self.folder, self.folder)
        return SaveCheckpoint(vectors, record, record.progress.global_steps, best=False, keep=KEPT_CHECKPOINTS)


class WorldSingle(Watched, SimulatedCluster):
    """One server."""


class WorldPair(Watched, SimulatedPair):
    """A primary and its standby."""

    last = ""  # the event that has ended the primary
    # The standby was promoted while nothing was durable without it, by a worker whose link is as bad as that of the
    # standby. A wire that is cut between the two servers, while every worker reaches both, promotes nobody.
    waits_for_fence = False
    is_split = False  # the lease of the standby has ended since, and nobody could fence the primary: it went on alone

    def _new_worker(self, worker_id: str, *, process: int) -> WorldWorker:
        """Newcomers have the addresses in any order: after one promotion the standby's is often the first."""
        worker = super()._new_worker(worker_id, process=process)
        if self.now > self.begun and self.chance.random() < 0.7:
            worker.reconnect()
        return worker

    def step(self) -> None:
        before = self.has_taken_over
        super().step()
        is_alone = self.server.replication.followed == math.inf
        if self.has_taken_over and self.server is not self.successor:
            self.waits_for_fence = self.waits_for_fence or not (before or is_alone or self.link_is_cut)
            self.is_split = self.is_split or (self.waits_for_fence and is_alone and self.server.phase is Phase.SERVING)

    @property
    def has_taken_over(self) -> bool:
        """A standby that hears nothing of its primary for a second does so: a bad network suffices."""
        return self.standby.server is not None

    @property
    def has_witness(self) -> bool:
        """Whether a worker is left that the primary has served."""
        return any(worker.alive and worker.machine._identity._latest_epoch for worker in self.workers)

    def has_told_loss(self, worker_id: str) -> bool:
        """Whether the log says that a split has cost pushes of this worker, which were durable at the primary alone."""
        return self.is_split and any(note.startswith(f"{worker_id} has dropped") for note in self.notes)

    @property
    def keeps_durable(self) -> bool:
        """Whether what was durable is here."""
        return not self.is_split


def _is_verified(path: Path) -> bool:
    try:
        read_checkpoint(path)
    except CheckpointError:
        return False
    return True


def checked_next(gate: ConsistencyGate, members: Membership, *, _next: Any = ConsistencyGate.next) -> list[WaitingPush]:
    """Stands where ConsistencyGate.next would: who is in an update, and how far the first leads."""
    together: list[WaitingPush] = _next(gate, members)
    workers = [push.member.worker_id for push in together]
    assert len(set(workers)) == len(workers), f"{workers} in one update"
    moving = {member.worker_id for member in members.who_may_push()}
    if workers and gate._settings.rule == "sync":
        assert moving <= set(workers), f"a round without {moving - set(workers)}"
    if moving & set(workers) and gate._settings.rule == "ssp":
        clocks = [clock for worker, clock in gate._clocks.items() if worker in moving]
        assert max(clocks) - min(clocks) <= gate._settings.slack, f"more than the slack: {gate._clocks} of {moving}"
    return together
