"""
A sharded run in one thread: a simulated cluster for each shard, with one clock, and workers that push to all of them.

The worker's composition is the real one (remote_parameters.py) over real machines; the connection below stands where a
ZmqClient would.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ps_client.machine.effects import Effect
from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.zmq_client import ReplyFuture
from ps_common.protocol import messages
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_spec import Wire
from tests.simulation.cluster import SimulatedCluster, SimulatedWorker

Drive = Callable[[float, Future[Any], float | None], None]
REPLY_SECONDS = 600.0  # for the reply of a call


class Connection:
    """One worker's connection to one shard."""

    def __init__(self, cluster: SimulatedCluster, worker: SimulatedWorker, drive: Drive) -> None:
        self.worker = worker
        self.machine = worker.machine
        self._cluster = cluster
        self._drive = drive
        self._pending: dict[int, ReplyFuture[Any]] = {}
        worker.next_call = self._replied  # type: ignore[method-assign]

    def call(self, method: Callable[..., Any]) -> ReplyFuture[Any]:
        ticket, effects = method(now=self._cluster.now)
        reply = self._pending[ticket] = ReplyFuture(partial(self._drive, self._cluster.now + REPLY_SECONDS))
        self._cluster._do_worker(self.worker, effects)
        return reply

    def _replied(self, reply: ToWorker | None, vector: Any, *, now: float) -> list[Effect]:
        """The reply of a call; None: the worker has just joined."""
        if reply is not None:
            self._pending.pop(reply.request).set_result((reply, vector))
        return []


class SimulatedShards:
    """
    `shards` servers of one run and `workers` workers. Each worker has up to `prefetch` pushes in flight.

    `options` are those of SimulatedCluster.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        shards: int,
        workers: int,
        seed: int = 0,
        prefetch: int = 16,
        wire: Wire | None = None,
        **options: Any,
    ) -> None:
        addresses = tuple(f"shard-{number}:1" for number in range(1, shards + 1)) if shards > 1 else ()
        self.schema = schema
        self.clusters = [
            SimulatedCluster(
                workers=workers,
                updates=0,
                seed=seed + number,
                shard=Shard(number=number + 1, addresses=addresses),
                **options,
            )
            for number in range(shards)
        ]
        for cluster in self.clusters[1:]:
            cluster.follow_shard_1(self.clusters[0])
        self._wire = wire or Wire(prefetch=prefetch)
        self.connections: list[list[Connection]] = []  # of each worker
        self.workers = [self._parameters(number) for number in range(workers)]
        self.made = [0] * workers  # pushes
        self.totals = [torch.zeros(schema.size) for _ in range(workers)]
        self.newest: list[Newest] = []
        self.ends = False  # the run may end

    def seed(self, weights: Tensor) -> None:
        """Begin the run with these weights, and wait until every shard has a checkpoint."""
        self.newest = []
        for worker in self.workers:
            worker.seed(weights)
        for worker in self.workers:
            self.newest.append(worker.pull())
        self.run_until(lambda: all(cluster.checkpoint is not None for cluster in self.clusters))

    def push(self, number: int, gradient: Tensor) -> Newest:
        """The next push of this worker; it waits for replies only while more than `prefetch` are in flight."""
        self.made[number] += 1
        self.totals[number] += gradient
        newest = self.workers[number].push_pull(gradient, computed_on=self.newest[number], steps=2)
        self.newest[number] = newest
        return newest

    def adjust(self, settings: dict[str, Any]) -> None:
        """Somebody adjusts the run at shard 1, now."""
        self.clusters[0]._receive(b"ps-ctl", messages.Adjust(request=1, settings=settings), ())

    def decided(self) -> list[Any]:
        """The settings of each shard, with all that was adjusted; of one that is down, those it had."""
        runs = [cluster.server.run for cluster in self.clusters]
        return [run and (run.spec, run.adjustments) for run in runs]

    def step(self) -> None:
        assert self.ends or self.errors() == []
        for cluster in self.clusters:
            cluster.step()

    def run_until(self, condition: Callable[[], bool], *, within_seconds: float = 600.0) -> None:
        deadline = self.clusters[0].now + within_seconds
        while not condition():
            assert self.clusters[0].now < deadline, f"not within {within_seconds} simulated seconds"
            self.step()

    def run_to_the_end(self) -> None:
        """Until every push made is settled at every shard, and none is to be sent again."""
        self.run_until(lambda: all(self.settled(cluster) == self.made for cluster in self.clusters))

    def settled(self, cluster: SimulatedCluster) -> list[int]:
        """How many pushes of each worker this shard has settled; none while it is down."""
        run = cluster.server.run
        if not cluster.server_up or run is None:
            return [-1] * len(self.made)
        accounts = run.ledger.accounts
        return [accounts[f"w{number}"].through if f"w{number}" in accounts else -1 for number in range(len(self.made))]

    def whole(self, vector: str = "weights") -> Tensor:
        """The vectors of all shards, one after another."""
        return torch.cat(
            [cluster.server.run.weights.vectors()[vector] for cluster in self.clusters if cluster.server.run]
        )

    def errors(self) -> list[Exception]:
        return [one.worker.error for worker in self.connections for one in worker if one.worker.error is not None]

    def _parameters(self, number: int) -> RemoteParameters:
        connections = [Connection(cluster, cluster.workers[number], self._drive) for cluster in self.clusters]
        self.connections.append(connections)
        return RemoteParameters(connections, self.schema, self._wire)  # type: ignore[arg-type]

    def _drive(self, deadline: float, future: Future[Any], timeout: float | None) -> None:
        """A caller that waits in turns of a timeout each has the one deadline of its call."""
        end = self.clusters[0].now + (math.inf if timeout is None else timeout)
        while not future.done() and self.clusters[0].now < end:
            assert self.clusters[0].now < deadline, f"no reply within {REPLY_SECONDS} simulated seconds"
            self.step()
