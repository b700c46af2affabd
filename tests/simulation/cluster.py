"""
A whole cluster in one thread: the two machines, a network that lies by a seed, and a clock that is only a number.

Workers descend a quadratic, or push integers whose sum is exact; nothing here opens a socket, sleeps or reads a clock.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ps_client.machine.effects import Effect, Fail, Joined, LogLine, Reconnect, Resolve, Transmit
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_common.errors import PsRlError, WireError
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.lineage import WHOLE, Lineage, Shard
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import Buffer, read_to_server, read_to_worker, to_frames
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from ps_server.machine.admission import proof_of
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.state.effects import Exit, SaveCheckpoint, Send, SendToServer
from ps_server.state.training_run import TrainingRun
from tests.simulation.kept_requests import violations_of
from tests.simulation.violations import violations_at

SCHEMA = Schema([TensorSpec("point", (3,))])
TICK_SECONDS = 0.05
GOAL = np.array([1.0, -2.0, 3.0], dtype=np.float32)

Gradient = Callable[[np.ndarray], np.ndarray]


def towards_goal(weights: np.ndarray) -> np.ndarray:
    """The gradient of ½ |w − GOAL|²."""
    return weights - GOAL


def ones(weights: np.ndarray) -> np.ndarray:
    """With sgd and learning rate 1, each push takes exactly 1 from each weight."""
    return np.ones(3, dtype=np.float32)


def integers(seed: int) -> Gradient:
    """Small integers, another vector each time; all sums of them are exact."""
    drawn = np.random.default_rng(seed)
    return lambda weights: drawn.integers(-9, 10, size=3).astype(np.float32)


@dataclass(frozen=True)
class Faults:
    """The faults of the network in each message, by chance."""

    drop: float = 0.0
    duplicate: float = 0.0
    longest_delay_seconds: float = 0.0  # different delays reorder


class Network:
    """
    Carries frames; real bytes, so that the wire format is part of the simulation.

    A link is one direction between a peer and its servers: ">w0" to worker w0, "w0>" from it.
    """

    def __init__(self, faults: Faults, seed: int) -> None:
        self.faults = faults
        self.faults_of: dict[str, Faults] = {}  # of links that have their own
        self.carried = 0  # messages
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._under_way: list[tuple[float, int, Callable[[], None]]] = []

    def carry(self, deliver: Callable[[], None], *, link: str = "", now: float) -> None:
        """Deliver later, perhaps twice, perhaps never."""
        self.carried += 1
        faults = self.faults_of.get(link, self.faults)
        if self._random.random() < faults.drop:
            return
        copies = 2 if self._random.random() < faults.duplicate else 1
        for _ in range(copies):
            arrives = now + TICK_SECONDS + self._random.uniform(0, faults.longest_delay_seconds)
            heapq.heappush(self._under_way, (arrives, next(self._order), deliver))

    def arrived(self, *, now: float) -> Iterator[Callable[[], None]]:
        """The deliveries that are due by now, in the order of arrival."""
        while self._under_way and self._under_way[0][0] <= now:
            yield heapq.heappop(self._under_way)[2]


@dataclass(repr=False)
class SimulatedWorker:
    """
    A trainer without a network: pulls, pushes the gradient, again and again, until it has made `updates` of them.

    With `in_flight` it has so many calls under way at the same time; with `pulls` false it pushes alone.
    """

    worker_id: str
    machine: ParameterClient
    gradient: Gradient
    updates: int
    process: int  # 1, 2, … of this id
    in_flight: int = 1
    pulls: bool = True
    codec: str = "float32"  # of gradients
    placed: Callable[[np.ndarray], np.ndarray] = lambda gradient: gradient  # where it lies from now on
    made: int = 0
    schema: Schema = SCHEMA
    total: np.ndarray = field(init=False)  # the sum of all gradients it made
    peer: bytes = b""
    connections: int = 0
    weights: np.ndarray = field(init=False)
    have: tuple[int, int] = (0, 0)  # epoch, version
    seen: list[tuple[int, int]] = field(default_factory=list)  # every (epoch, version) it was given
    acknowledged: int = 0
    applied: list[int] = field(default_factory=list)  # sequences
    stalest: int = 0  # versions that its latest push was late
    error: PsRlError | None = None
    alive: bool = True
    stalled: bool = False  # it makes no push, though it lives

    def __post_init__(self) -> None:
        self.total = np.zeros(self.schema.size)
        self.weights = np.zeros(self.schema.size, dtype=np.float32)
        self.reconnect()

    def __repr__(self) -> str:
        return f"<{self.worker_id}: {self.acknowledged} acknowledged, {self.machine}, error={self.error}>"

    @property
    def finished(self) -> bool:
        return self.acknowledged >= self.updates or self.error is not None or not self.alive

    @property
    def secret(self) -> str:
        return f"secret-of-{self.worker_id}-{self.process:010}"

    @property
    def proof(self) -> str:
        """The server's proof of its secret."""
        return proof_of(self.secret)

    def reconnect(self) -> None:
        """ROUTER gives each connection an id of its own."""
        self.connections += 1
        self.peer = f"{self.worker_id}/{self.process}/{self.connections}".encode()

    def next_call(self, reply: ToWorker | None, vector: Any, *, now: float) -> list[Effect]:
        """The trainer's next call after a reply; None: it has just joined."""
        match reply:
            case None:
                return self.machine.seed(self.schema, "float32", [self.weights.tobytes()], now=now)[1]
            case messages.Seeded():
                return self.machine.pull(have_epoch=0, have_version=0, now=now)[1]
            case messages.Weights() | messages.NotModified():
                self.have = (reply.epoch, reply.version)
                self.seen.append(self.have)
                if isinstance(reply, messages.Weights):
                    self.weights = (
                        CODECS[reply.codec].decode(vector, self.schema.size, self.schema.statistics).numpy().copy()
                    )
                if reply.settled is not None:
                    return self.acknowledge(reply.settled, now=now)
                return [effect for _ in range(self.in_flight) for effect in self.push(now=now)]
            case messages.Settled():
                return self.acknowledge(reply.settlement, now=now)
        return []

    def acknowledge(self, settled: messages.Settlement, *, now: float) -> list[Effect]:
        assert settled.verdict in ("applied", "duplicate")
        assert settled.sequence not in self.applied, "a push is answered once"
        self.acknowledged += 1
        self.applied.append(settled.sequence)
        self.stalest = max(self.stalest, settled.staleness)
        return self.push(now=now)

    def push(self, *, now: float) -> list[Effect]:
        if self.made >= self.updates:
            return []
        self.made += 1
        gradient = self.gradient(self.weights).astype(np.float32)
        self.total += gradient
        epoch, version = self.have
        vector = [CODECS[self.codec].encode(torch.from_numpy(self.placed(gradient)), self.schema.statistics)]
        codec = self.weight_codec() if self.pulls else None
        return self.machine.push(
            self.codec, vector, epoch=epoch, computed_on=version, steps=2, now=now, weight_codec=codec
        )[1]

    def weight_codec(self) -> str | Base:
        """How a push brings weights."""
        return "float32"


def run_id_of(life: int) -> str:
    """The id of the run that the server begins in one of its lives."""
    return f"{life:016x}"


class SimulatedCluster:
    """One server and some workers. `settings` is the run, as nested dictionaries."""

    server_tick_seconds = TICK_SECONDS

    def __init__(
        self,
        *,
        workers: int,
        updates: int,
        seed: int,
        faults: Faults,
        gradient: Gradient = towards_goal,
        settings: dict[str, Any] | None = None,
        resend_bytes: int = 10**7,
        in_flight: int = 1,
        pulls: bool = True,
        checkpoint_takes_seconds: float = 0.0,
        checkpoint_seconds: float = 5.0,
        receive_bytes: int = 2**30,
        addresses: int = 1,
        shard: Shard = WHOLE,
        code: Mapping[str, dict[str, messages.Code]] | None = None,
        worker: Callable[..., SimulatedWorker] = SimulatedWorker,
    ) -> None:
        self._code = code or {}  # of the run's own parts, that workers state, by worker id
        self._worker = worker
        self.now = self.begun = self._next_tick = 100.0
        self.lineage = Lineage.begun(run_id_of(1), secret="s", draw=0, shard=shard)  # what the run's folder remembers
        self.lives = 1  # of the server
        self.run: RunSpec = run_from_dict(
            settings or {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 0.05}}, source="test"
        )
        self.network = Network(faults, seed)
        self.first_shard: SimulatedCluster | None = None
        self.others: dict[bytes, Callable[[ToWorker], None]] = {}  # servers of other shards, which follow this one
        self._heard: set[bytes] = set()  # peers that have sent something
        self.disk_full = False
        self.resend_bytes = resend_bytes
        self._in_flight, self._pulls, self._addresses = in_flight, pulls, addresses
        self._checkpoint_takes_seconds, self._checkpoint_seconds = checkpoint_takes_seconds, checkpoint_seconds
        self._receive_bytes = receive_bytes
        self._writing: tuple[float, SaveCheckpoint] | None = None  # when it will be complete
        self.server = self._new_server(None)
        self.server_up = True
        self.exited = False
        self.checkpoint: SaveCheckpoint | None = None  # the newest complete one
        self._gradient = gradient
        self._updates = updates
        self.workers = [self._new_worker(f"w{number}", process=1) for number in range(workers)]

    # -- what a test does to it ---------------------------------------------------------------------------------------

    def run_until(self, condition: Callable[[], bool], *, within_seconds: float = 600.0) -> None:
        """Let time pass until the condition holds; fail when it does not in time."""
        deadline = self.now + within_seconds
        while not condition():
            assert self.now < deadline, f"not within {within_seconds} simulated seconds: {self.server} {self.workers}"
            self.step()

    def run_to_the_end(self) -> None:
        """Until every worker has had all its pushes acknowledged."""
        self.run_until(lambda: all(worker.finished for worker in self.workers))

    def step(self) -> None:
        """One tick of the clock: deliver what has arrived, then let everyone look at the time."""
        self.now += TICK_SECONDS
        self._ticks = self.now >= self._next_tick - TICK_SECONDS / 2
        self._next_tick += self.server_tick_seconds if self._ticks else 0.0
        for deliver in self.network.arrived(now=self.now):
            deliver()
        if self.server_up:
            self._finish_writing()
        if self.server_up and self._ticks:
            self._do_server(self.server.tick(now=self.now))
        if self.server_up:
            assert (found := violations_at(self.server)) == "", found
        for worker in self.workers:
            if worker.alive:
                self._do_worker(worker, worker.machine.tick(now=self.now, stalled=worker.stalled))
                assert (found := violations_of(worker.machine._requests)) == "", found

    def kill_server(self) -> None:
        """As kill −9: updates outside of checkpoints are gone."""
        self.server_up = False
        self._writing = None

    def ask_to_leave(self) -> None:
        """As SIGTERM to the server."""
        self._do_server(self.server.leave(now=self.now))

    def save(self) -> None:
        """Somebody wants a checkpoint."""
        self._do_server(self.server.save(now=self.now))

    def restore_server(self) -> None:
        """Start it again in its folder: from the newest complete checkpoint, or empty, when there is none."""
        self.lives += 1
        self.lineage = self.lineage.resumed(draw=0)
        run = None
        if (saved := self._stored()) is not None:
            run = TrainingRun.restored(saved.vectors, saved.record, now=self.now)
            run.lineage = self.lineage
        self.server = self._new_server(run)
        self.server_up = True

    def begin_another_run(self) -> None:
        """Start a server in another folder, at the same address."""
        self.lives += 1
        self.checkpoint = None
        self.lineage = Lineage.begun(run_id_of(self.lives), secret="s", draw=0)
        self.server = self._new_server(None)
        self.server_up = True

    def restart_worker(self, index: int) -> None:
        """Kill it and start another process of the same id."""
        old = self.workers[index]
        old.alive = False
        self.workers[index] = self._new_worker(old.worker_id, process=old.process + 1)

    def add_worker(self, worker_id: str, *, process: int = 1) -> SimulatedWorker:
        """A process that begins now; the test adds it to `workers`."""
        return self._new_worker(worker_id, process=process)

    def weights(self) -> np.ndarray:
        assert self.server.run is not None
        return self.server.run.weights.flat.numpy()

    def lost(self) -> np.ndarray:
        """The part of the sum of all gradients that the weights lack; with sgd and learning rate 1 exact."""
        return np.asarray(self.weights() + sum(worker.total for worker in self.workers))

    def distance_to_goal(self) -> float:
        return float(np.linalg.norm(self.weights() - GOAL))

    # -- how it works -------------------------------------------------------------------------------------------------

    def _new_server(self, run: TrainingRun | None) -> ParameterServer:
        return ParameterServer(
            run,
            lineage=self.lineage,
            overrides={},
            limits=Limits(
                lease_seconds=2.0, checkpoint_seconds=self._checkpoint_seconds, receive_bytes=self._receive_bytes
            ),
            now=self.now,
        )

    def _new_worker(self, worker_id: str, *, process: int) -> SimulatedWorker:
        machine = ParameterClient(
            Identity(
                code=self._code.get(worker_id),
                worker_id=worker_id,
                secret=f"secret-of-{worker_id}-{process:010}",
                overrides={},
                proposed_run=self.run.to_dict(),
                host="simulated",
                environments=1,
                first_shard=self._welcome_of_shard_1(worker_id),
            ),
            patience_seconds=120.0,
            resend_bytes=self.resend_bytes,
            addresses=self._addresses,
            now=self.now,
        )
        return self._worker(
            worker_id, machine, self._gradient, self._updates, process, in_flight=self._in_flight, pulls=self._pulls
        )

    def _welcome_of_shard_1(self, worker_id: str) -> Any:
        """The other shards are told this of it: there worker wK has the number K."""
        is_other = self.lineage.shard.number > 1
        return SimpleNamespace(first_shard=run_id_of(1), number=int(worker_id[1:])) if is_other else None

    def _do_server(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case SaveCheckpoint():
                    self._writing = (self.now + self._checkpoint_takes_seconds, effect)
                    self._finish_writing()
                case SendToServer():
                    self._ask_shard_1(effect, self._other_peer)
                case Exit():
                    self.exited = True

    def _send(self, send: Send) -> None:
        assert send.to in self._heard, f"{send.to!r} has sent nothing, and is sent {send.message}"
        peer, copied = send.to, [bytes(frame) for frame in self._frames_to_worker(send)]
        link = f">{peer.partition(b'/')[0].decode()}"
        self.network.carry(lambda: self._to_worker(peer, copied), link=link, now=self.now)  # which keeps no snapshot

    def _finish_writing(self) -> None:
        if self._writing is None or self.now < self._writing[0]:
            return
        checkpoint, self._writing = self._writing[1], None
        if self.disk_full:
            self._do_server(self.server.checkpoint_failed("no space left on device"))
        else:
            self._store(checkpoint)
            self._do_server(self.server.checkpoint_saved("simulated"))

    def _store(self, checkpoint: SaveCheckpoint) -> None:
        """On this disk nothing is ever damaged."""
        self.checkpoint = checkpoint

    def _stored(self) -> SaveCheckpoint | None:
        return self.checkpoint

    def _do_worker(self, worker: SimulatedWorker, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    frames = [bytes(frame) for frame in self._frames_to_server(worker, effect)]
                    deliver = partial(self._to_server, worker.peer, frames)
                    self.network.carry(deliver, link=f"{worker.worker_id}>", now=self.now)
                case Reconnect():
                    worker.reconnect()
                case Joined():
                    self._do_worker(worker, worker.next_call(None, (), now=self.now))
                case Resolve():
                    self._do_worker(worker, worker.next_call(effect.reply, effect.vector, now=self.now))
                case Fail():
                    worker.error = effect.error
                case LogLine():
                    pass

    def _frames_to_worker(self, send: Send) -> Sequence[Buffer]:
        return to_frames(send.message, [send.snapshot.buffer] if send.snapshot else send.vector)

    def _frames_to_server(self, worker: SimulatedWorker, transmit: Transmit) -> Sequence[Buffer]:
        return to_frames(transmit.message, transmit.vector)

    def _to_server(self, peer: bytes, frames: list[bytes]) -> None:
        if self.server_up:
            try:
                message, vector = read_to_server(frames)
            except WireError as error:
                self._heard.add(peer)
                self._do_server(self.server.unreadable(peer, str(error), now=self.now))
            else:
                self._receive(peer, message, vector)

    def _receive(self, peer: bytes, message: ToServer, vector: Sequence[Buffer]) -> None:
        assert isinstance(message, ToServer)
        self._heard.add(peer)
        self._do_server(self.server.receive(peer, message, vector, now=self.now))

    def follow_shard_1(self, first_shard: "SimulatedCluster") -> None:
        """From now on this shard is in touch with shard 1."""
        self.first_shard = first_shard
        first_shard.others[self._other_peer] = self._hear_shard_1

    @property
    def _other_peer(self) -> bytes:
        return f"{self.lineage.shard}".encode()

    def _ask_shard_1(self, effect: SendToServer, peer: bytes) -> None:
        assert self.first_shard is not None
        frames = [bytes(frame) for frame in to_frames(effect.message)]
        self.network.carry(partial(self.first_shard._from_shard, peer, frames), now=self.now)

    def _from_shard(self, peer: bytes, frames: list[bytes]) -> None:
        self._to_server(peer, frames)

    def _hear_shard_1(self, reply: ToWorker) -> None:
        if self.server_up:
            self._do_server(self.server.receive_from_first_shard(reply, now=self.now))

    def _to_worker(self, peer: bytes, frames: list[bytes]) -> None:
        if peer in self.others:
            self.others[peer](read_to_worker(frames)[0])
        for worker in self.workers:
            if worker.peer == peer and worker.alive:
                self._hear(worker, frames)

    def _hear(self, worker: SimulatedWorker, frames: list[bytes]) -> None:
        message, vector = read_to_worker(frames)
        self._do_worker(worker, worker.machine.receive(message, vector, now=self.now))
