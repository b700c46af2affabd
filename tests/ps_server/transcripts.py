"""
A server machine and what is said to it, as short as a transcript. No sockets, no files; time is a number.

The runs here use sgd with learning rate 1 unless a test says otherwise, so that weights are sums of integers and exact.
"""

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ps_common.protocol import messages
from ps_common.protocol.lineage import WHOLE, Lineage, Shard
from ps_common.protocol.messages import NO_LIMIT, Episode, Message, Push, Settlement, ToServer, settlement_of
from ps_common.protocol.record import Record
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import Buffer
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.state.effects import Effect, Exit, LogLine, SaveCheckpoint, Send
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun
from tests.simulation.violations import violations_at

SCHEMA = Schema([TensorSpec("policy.weight", (2, 1)), TensorSpec("policy.bias", ())])
START = 1000.0  # of the clock
EPOCH = 7
RUN_ID = "0123456789abcdef"
SECRET = "of the servers of this run"
LEASE_SECONDS = 5.0
CHECKPOINT_SECONDS = 30.0

M = TypeVar("M", bound=Message)


def a_run(**sections: Any) -> RunSpec:
    """A run specification: sgd with learning rate 1, and whole sections in their place."""
    settings = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}} | sections
    return run_from_dict(settings, source="test")


def encoded(values: Sequence[float]) -> list[bytes]:
    """A vector as the one buffer that follows a header, in the codec float32."""
    return [np.array(values, dtype="<f4").tobytes()]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def a_lineage(epoch: int = EPOCH, run_id: str = RUN_ID, shard: Shard = WHOLE) -> Lineage:
    return Lineage(run_id=run_id, secret=SECRET, epoch=epoch, shard=shard)


def later(epoch: int = EPOCH + 1, run_id: str = RUN_ID) -> dict[str, Any]:
    """What HELLO and FENCE say of a server of this run that serves in a later epoch, proof included."""
    return {"run_id": run_id, "latest_epoch": epoch, "epoch_proof": a_lineage(epoch, run_id).proof}


def restored_run(vectors: dict[str, Tensor], record: Record, *, epoch: int, now: float = START) -> TrainingRun:
    """The lineage that a checkpoint keeps, in this epoch."""
    run = TrainingRun.restored(vectors, record, now=now)
    run.lineage = a_lineage(epoch)
    return run


def secret_of(worker: str, process: int = 1) -> str:
    """The secret of one process of a worker."""
    return f"secret-of-process-{process}-of-{len(worker)}-{worker.encode().hex()}"[:100]


class Transcript:
    """
    One server machine and the peers that talk to it. A worker speaks on the connection of its own name unless told.

    `effects` holds what the newest message or tick has caused.
    """

    def __init__(
        self,
        run: TrainingRun | RunSpec | None = None,
        *,
        epoch: int = EPOCH,
        run_id: str = RUN_ID,
        now: float = START,
        overrides: dict[str, Any] | None = None,
        receive_bytes: int = NO_LIMIT,
        shard: Shard = WHOLE,
        start: StartingWeights | None = None,
    ) -> None:
        self.now = now
        self.effects: list[Effect] = []
        self.applied: list[tuple[str, int]] = []  # (connection, sequence) of each push that was said to be applied
        self.applied_steps = 0
        self._request = itertools.count(1)
        self.machine = ParameterServer(
            TrainingRun(run, a_lineage(epoch, shard=shard)) if isinstance(run, RunSpec) else run,
            lineage=a_lineage(epoch, run_id, shard),
            overrides=overrides or {},
            limits=Limits(
                lease_seconds=LEASE_SECONDS, checkpoint_seconds=CHECKPOINT_SECONDS, receive_bytes=receive_bytes
            ),
            now=now,
            start=start,
        )
        self._first_version = self.machine.version or 1
        self._first_steps = self.run.progress.global_steps if self.machine.run else 0

    @classmethod
    def seeded(cls, *, workers: Sequence[str] = ("a",), receive_bytes: int = NO_LIMIT, **sections: Any) -> "Transcript":
        """The run of `a_run`, with these workers joined and all weights 0."""
        server = cls(a_run(**sections), receive_bytes=receive_bytes)
        for worker in workers:
            server.hello(worker)
        server.seed(workers[0])
        return server

    @property
    def run(self) -> TrainingRun:
        assert self.machine.run is not None
        return self.machine.run

    def check(self) -> None:
        """T and the version are exactly those of the pushes that replies called applied in this epoch."""
        if self.machine.run is None or self.machine.run.store is None:
            assert self.applied == []
            return
        assert self.machine.version == self._first_version + len(self.applied)
        assert self.run.progress.global_steps == self._first_steps + self.applied_steps
        assert self.machine.version == 1 + self.run.progress.updates

    # -- what peers say -----------------------------------------------------------------------------------------------

    def say(self, peer: str, message: ToServer, buffers: Sequence[Buffer] = ()) -> list[Effect]:
        self.effects = self.machine.receive(peer.encode(), message, buffers, now=self.now)
        for send in sends(self.effects):
            settled = settlement_of(send.message)
            if settled is not None and settled.verdict == "applied":
                assert isinstance(message, Push)
                self.applied.append((peer, settled.sequence))
                self.applied_steps += message.steps
        return self.effects

    def ask(self, peer: str, message: ToServer, buffers: Sequence[Buffer] = ()) -> Send:
        """The one reply to a message."""
        told = [one for one in sends(self.say(peer, message, buffers)) if one.to == peer.encode()]
        replies = [one for one in told if one.message.request == message.request]
        assert len(replies) == 1, f"{message} has {len(replies)} replies"
        return replies[0]

    def answer(self, expected: type[M], peer: str, message: ToServer, buffers: Sequence[Buffer] = ()) -> M:
        """The one reply to a message, which must be of this type."""
        reply = self.ask(peer, message, buffers).message
        assert isinstance(reply, expected), reply
        return reply

    def refusal(self, peer: str, message: ToServer, buffers: Sequence[Buffer] = ()) -> messages.Refused:
        return self.answer(messages.Refused, peer, message, buffers)

    def next_request(self) -> int:
        return next(self._request)

    def hello(self, worker: str, **fields: Any) -> messages.Welcome:
        return self.answer(messages.Welcome, fields.pop("peer", worker), self.hello_of(worker, **fields))

    def hello_of(self, worker: str, *, process: int = 1, **fields: Any) -> messages.Hello:
        secret = secret_of(worker, process)
        known: dict[str, Any] = {"request": self.next_request(), "secret": secret, "protocols": (1, 1)}
        return messages.Hello(worker_id=worker, **(known | fields))

    def seed(self, worker: str, weights: Sequence[float] = (0, 0, 0), schema: Schema = SCHEMA) -> messages.Seeded:
        seed = messages.Seed(request=self.next_request(), schema=schema.specs)
        seeded = self.answer(messages.Seeded, worker, seed, encoded(weights))
        if self.machine.checkpoints.is_writing and seeded.accepted:
            self.machine.checkpoint_saved("seed.safetensors")
        return seeded

    def push(self, worker: str, sequence: int, gradient: Sequence[float] = (1, 1, 1), **fields: Any) -> Settlement:
        peer = fields.pop("peer", worker)
        return self.answer(messages.Settled, peer, self.push_of(sequence, **fields), encoded(gradient)).settlement

    def push_of(self, sequence: int, **fields: Any) -> Push:
        return Push(**self._push_fields(sequence, fields))

    def push_pull_of(self, sequence: int, *, have: int, weight_codec: str = "float32", **fields: Any) -> Push:
        """A push that asks for newer weights than those of version `have`."""
        fields |= {"weight_codec": weight_codec, "have_version": have, "have_epoch": self.machine.epoch}
        return self.push_of(sequence, **fields)

    def pull(self, peer: str, *, have: int = 0, epoch: int | None = None, target: bool = False) -> Send:
        have_epoch = self.machine.epoch if epoch is None else epoch
        request = self.next_request()
        return self.ask(peer, messages.Pull(request=request, have_version=have, have_epoch=have_epoch, target=target))

    def report(self, worker: str, sequence: int, *returns: float, peer: str = "", **meters: float) -> messages.Noted:
        """Report games of ten steps, which the worker's pushes have counted."""
        account = self.run.ledger.accounts[worker]
        self.run.ledger.change(worker, unplayed=max(account.unplayed, 10 * len(returns)))
        episodes = tuple(Episode(value, 10) for value in returns)
        request = self.next_request()
        report = messages.Report(request=request, sequence=sequence, episodes=episodes, meters=meters)
        return self.answer(messages.Noted, peer or worker, report)

    def goodbye(self, worker: str, reason: str = "") -> messages.Farewell:
        return self.answer(messages.Farewell, worker, messages.Goodbye(request=self.next_request(), reason=reason))

    def heartbeat(self, worker: str, **fields: Any) -> messages.Alive:
        return self.answer(messages.Alive, worker, messages.Heartbeat(request=self.next_request(), **fields))

    def weights(self) -> list[float]:
        """The newest weights, as a peer without any pulls them."""
        return received(self.pull("a reader"))

    # -- what time and the shell do -----------------------------------------------------------------------------------

    def after(self, seconds: float) -> list[Effect]:
        """Let time pass, then tick."""
        self.now += seconds
        self.effects = self.machine.tick(now=self.now)
        assert violations_at(self.machine) == ""
        return self.effects

    def save(self) -> SaveCheckpoint:
        """A checkpoint that the shell is to write; it is not complete yet."""
        return only(SaveCheckpoint, self.machine.save(now=self.now))

    def save_and_complete(self) -> SaveCheckpoint:
        checkpoint = self.save()
        self.effects = self.machine.checkpoint_saved("here.safetensors")
        return checkpoint

    def _push_fields(self, sequence: int, fields: dict[str, Any]) -> dict[str, Any]:
        known = {
            "request": self.next_request(),
            "sequence": sequence,
            "computed_on": self.machine.version,
            "epoch": self.machine.epoch,
            "schema_hash": SCHEMA.hash,
            "steps": 20,
        }
        return known | fields


def received(send: Send) -> list[float]:
    """The vector of WEIGHTS, as numbers, read by hand."""
    assert isinstance(send.message, messages.Weights), send.message
    assert send.snapshot is not None
    assert send.message.codec == "float32"
    return [float(value) for value in np.frombuffer(bytes(send.snapshot.buffer), dtype="<f4")]


def sends(effects: Sequence[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def notes(effects: Sequence[Effect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, LogLine)]


def exits(effects: Sequence[Effect]) -> list[Exit]:
    return [effect for effect in effects if isinstance(effect, Exit)]


E = TypeVar("E")


def only(kind: type[E], effects: Sequence[Effect]) -> E:
    """The one effect of this kind."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]
