"""
The parts of one server in one epoch, which the handlers of requests work on; and a request as its handler gets it,
with its sender.

A handler is a function of both that returns effects. dispatch.py has which handler a request has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import ToServer
from ps_common.protocol.status import Status
from ps_common.protocol.wire import Buffer
from ps_server.machine.checkpoints import Checkpoints
from ps_server.machine.ending import Ending, Phase
from ps_server.machine.flow_control import Limits
from ps_server.machine.membership import Member, Membership
from ps_server.machine.push_pipeline import PushPipeline
from ps_server.machine.refusals import Refusals
from ps_server.machine.status_report import FRESH_SECONDS, status_of
from ps_server.machine.subscriptions import Subscriptions, Watchers
from ps_server.replication.first_shard import FirstShard
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, PeerId
from ps_server.state.rollback import Rollback
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun

M = TypeVar("M", bound=ToServer)


@dataclass(frozen=True)
class Sender:
    """The sender of a message as far as access control knows it; the default is a sender that needs no key."""

    key: str = ""  # the public key that was shown, in ZeroMQ's notation; "" where no keys are asked for
    is_admin: bool = True


ANYBODY = Sender()


class Request(msgspec.Struct, Generic[M], frozen=True):
    """A request of a peer, which arrived at `now`. A struct is made in a quarter of the time of a dataclass."""

    peer: PeerId
    message: M
    vector: Sequence[Buffer]
    member: Member | None  # the worker at this connection
    key: str  # the public key that the peer has shown; "" where no keys are asked for
    now: float

    @property
    def worker(self) -> Member:
        assert self.member is not None, "the table lists this request as one of members alone"
        return self.member


class Parts:
    """
    The parts of the server of one run in one epoch; `lineage` names both.

    `run` is None until the first worker proposes a run. `overrides` are flat settings from the server's own flags, and
    take precedence over that worker's. `start` are the weights that a new run begins with; None: that worker's.
    """

    def __init__(
        self,
        run: TrainingRun | None,
        *,
        lineage: Lineage,
        overrides: dict[str, Any],
        limits: Limits,
        now: float,
        start: StartingWeights | None = None,
    ) -> None:
        self.run, self.start, self.overrides = run, start, overrides
        self._lineage = lineage  # of a run that no worker has proposed yet
        self.first_shard = FirstShard(lineage.shard, overrides)
        self.membership = Membership(limits.lease_seconds, now=now)
        self.refusals = Refusals(self.membership)
        self.replication = Replication()
        rollback = Rollback()
        self.checkpoints = Checkpoints(
            (run and run.adjustments.checkpoint_seconds) or limits.checkpoint_seconds,
            run,
            replication=self.replication,
            refusals=self.refusals,
            rollback=rollback,
            now=now,
        )
        parts = self.membership, self.refusals, self.replication, rollback, self.first_shard
        self.pushes = PushPipeline(run, *parts, receive_bytes=limits.receive_bytes)
        self.ending = Ending(self.membership, self.pushes, self.replication)
        self.subscriptions, self.watchers = Subscriptions(), Watchers()
        self.newest_status: tuple[float, Status] | None = None  # None: an operator has changed the run since
        self.process: dict[str, int] = {}  # fields of the status that the shell measures: memory and connections

    @property
    def lineage(self) -> Lineage:
        return self.run.lineage if self.run else self._lineage

    @property
    def epoch(self) -> int:
        """Each server of the run, and each restart of one, has an epoch of its own."""
        return self.lineage.epoch

    @property
    def version(self) -> int:
        """The version of the weights; 0 before the run is seeded."""
        return self.run.store.version if self.run and self.run.store else 0

    @property
    def phase(self) -> Phase:
        """dispatch.py has which requests are legal in it."""
        return self.ending.phase or (Phase.SERVING if self.version else Phase.EMPTY)

    @property
    def decided(self) -> TrainingRun:
        """The run, of which a worker has been admitted."""
        assert self.run is not None, "this request is of a run, which HELLO decides"
        return self.run

    def decide(self, run: TrainingRun) -> None:
        """The run, or its rule of consistency, is this one from now on."""
        self.run = run
        self.pushes.begin(run)

    def save(self, *, now: float, is_last: bool = False) -> list[Effect]:
        """Write a checkpoint of the weights unless one is being written, or it is fenced; `is_last`: at its end."""
        if self.run is None or self.ending.fenced:
            return []
        return self.checkpoints.begin(self.run, now=now, is_last=is_last)

    def end(self, reason: str, *, failed: bool, now: float) -> list[Effect]:
        """The run is over: send STOP, save, and exit when the workers have left."""
        ends = self.ending.drain(reason, failed=failed, uninformed=self.first_shard.uninformed, now=now)
        return [*ends, *self.save(now=now)] if ends else []

    def fence(self, address: str, *, epoch: int, now: float) -> list[Effect]:
        """Another server serves the run in this later epoch, at `address` if known. This one saves nothing more."""
        return self.ending.fence(self.decided, address, epoch=epoch, now=now)

    def status(self, *, now: float) -> Status:
        """The state of the run; an immutable value that any thread may have."""
        checkpoints = self.checkpoints
        status = status_of(
            self.run,
            self.membership.all(),
            phase=self.phase.value,
            shard=self.lineage.shard,
            run_id=self.lineage.run_id,
            epoch=self.epoch,
            ending=self.ending.reason,
            failed=self.ending.failed,
            refused=dict(self.refusals.counts),
            not_modified=self.pushes.not_modified,
            checkpoint_version=checkpoints.saved.version,
            checkpoint_age_seconds=None if checkpoints.saved_at is None else now - checkpoints.saved_at,
            checkpoint_failures=checkpoints.failures,
            checkpoint_error=checkpoints.error,
            checkpoint_seconds=checkpoints.every_seconds,
            standby=self.replication.status(now=now),
            **self.process,
            now=now,
        )
        self.newest_status = now, status
        return status

    def recent_status(self, *, now: float) -> Status:
        """The newest status that was made, if it is fresh: one is made with each tick, and few are for requests."""
        if self.newest_status is None or now - self.newest_status[0] >= FRESH_SECONDS:
            return self.status(now=now)
        return self.newest_status[1]
