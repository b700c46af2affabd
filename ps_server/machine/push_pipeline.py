"""
The path of a push through the server: flow control, consistency gate, settlement, reply.

training_run.py decides what a push does to the weights; this file decides when, and what the reply is. ledger.py has
the states of a push.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ps_common.protocol import messages
from ps_common.protocol.messages import CreditRequest, Pull, Push, Settlement
from ps_common.protocol.tensors import ELEMENT_BYTES, MAX_ELEMENTS, vector_bytes
from ps_common.protocol.wire import Buffer
from ps_common.settings.run_spec import Consistency
from ps_server.machine.consistency import ConsistencyGate, WaitingPush
from ps_server.machine.flow_control import PushBudget
from ps_server.machine.membership import Member, Membership
from ps_server.machine.refusals import Refusals
from ps_server.replication.first_shard import FirstShard
from ps_server.replication.replication import Replication
from ps_server.state.effects import Effect, PeerId, ReloadCheckpoint, Send
from ps_server.state.guards import Denied, codec_for_weights
from ps_server.state.rollback import Rollback
from ps_server.state.training_run import TrainingRun


class PushPipeline:
    """The pushes of one server in one epoch. `run` is None until it is decided."""

    def __init__(
        self,
        run: TrainingRun | None,
        membership: Membership,
        refusals: Refusals,
        replication: Replication,
        rollback: Rollback,
        first_shard: FirstShard,
        *,
        receive_bytes: int,
    ) -> None:
        self.not_modified = 0  # replies without weights, because the peer has the newest
        self.budget = PushBudget(receive_bytes, membership)
        self._receive_bytes = receive_bytes
        self._membership = membership
        self._refusals = refusals
        self._replication = replication
        self._rollback = rollback
        self._first_shard = first_shard
        self.begin(run)

    def begin(self, run: TrainingRun | None) -> None:
        """The run is decided, and with it the rule of the consistency gate."""
        self._run = run
        settings = run.spec.consistency if run else Consistency()
        self.gate = ConsistencyGate(settings, self._settled_through, budget_bytes=self._receive_bytes)

    @property
    def most_vector_bytes(self) -> int:
        """The size of the largest vector that a worker may send now."""
        # The scales of a compressed gradient take some bytes too.
        return max(self.vector_bytes, 64) if self.vector_bytes else ELEMENT_BYTES * MAX_ELEMENTS

    @property
    def vector_bytes(self) -> int:
        return self._run.store.schema.bytes if self._run and self._run.store else 0

    def credit(self) -> int:
        return self.budget.credit(self.vector_bytes)

    # -- requests -----------------------------------------------------------------------------------------------------

    def pull(self, peer: PeerId, pull: Pull, *, epoch: int) -> Send:
        """The reply to PULL, of a member or of any other peer. Raises Denied."""
        return self._newest(peer, pull, codec=codec_for_weights(pull.codec), epoch=epoch)

    def receive(self, member: Member, push: Push, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """
        A push has arrived. A retry of a settled push gets its reply at once; a new push goes to the gate.

        Raises Denied.
        """
        run = self._decided()
        if push.weight_codec is not None:
            codec_for_weights(push.weight_codec)  # refused before the push is settled
        self.budget.arrived(member.peer)
        effects: list[Effect] = []
        waiting = WaitingPush(member, member.peer, push, vector, vector_bytes(vector))
        self.gate.give_up(member.worker_id, push.oldest)
        if not run.is_new(member.worker_id, push):
            effects.append(self._reply(run, waiting, run.settled_before(member.worker_id, push), now=now))
        elif self.gate.admit(waiting, is_alive=self._membership.is_alive):
            effects += self._settle_next(run, now=now)
        else:
            reason = f"push {push.sequence} would wait here, and older ones take the memory; send it again after those"
            raise Denied("outside_window", reason)
        return [*effects, *self.grant_credit(now=now)]

    def ask_for_credit(self, member: Member, request: CreditRequest, *, now: float) -> list[Effect]:
        """A worker asks to send a push that is larger than its credit. Raises Denied."""
        if request.bytes > self.vector_bytes:  # credit for a push that never comes would be kept from the others
            raise Denied("wrong_size", f"no push of this run has {request.bytes} bytes")
        if self.budget.has_grant(member.peer, now=now):  # and the reply was lost: in the queue it would wait for itself
            return [Send(member.peer, messages.CreditGrant(request=request.request))]
        self.budget.ask(member.peer, request.request, request.bytes)
        return self.grant_credit(now=now)

    # -- settlement ---------------------------------------------------------------------------------------------------

    def settle_ready(self, *, now: float) -> list[Effect]:
        """
        Time has passed, or a worker or a setting has changed: settle the pushes that nothing holds up any more, until
        none is left or the run is over.
        """
        if self._run is None:
            return []
        self.gate.look_again()
        return self._settle_next(self._run, now=now)

    def _settle_next(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Settle the pushes that the gate lets through; none while paused."""
        effects: list[Effect] = []
        if run.store is None or run.adjustments.holds_pushes:
            return effects
        if self._first_shard.holds(run, now=now):
            return effects
        while together := self.gate.next(self._membership):
            effects += self._settle(run, together, now=now)
            if run.end_reason(now=now):
                break
        return effects

    def grant_credit(self, *, now: float) -> list[Effect]:
        gate = self.gate
        grants = self.budget.next_grants(waiting_bytes=gate.waiting_bytes, has_waiting=gate.has_waiting, now=now)
        return [Send(peer, messages.CreditGrant(request=request)) for peer, request in grants]

    def watch_weights(self) -> list[Effect]:
        """Go back to a checkpoint if the weights are not finite any more."""
        return [ReloadCheckpoint()] if self._run is not None and self._rollback.is_lost(self._run) else []

    def _settle(self, run: TrainingRun, together: Sequence[WaitingPush], *, now: float) -> list[Effect]:
        """Apply these pushes as one update, or discard them, and reply."""
        settled = run.settle([(push.member.worker_id, push.message, push.vector) for push in together])
        replies = [self._reply(run, push, one, now=now) for push, one in zip(together, settled, strict=True)]
        return [*replies, *(self.watch_weights() if any(one.code == "not_finite" for one in settled) else [])]

    def _reply(self, run: TrainingRun, push: WaitingPush, settled: Settlement, *, now: float) -> Send:
        push.member.push_settled(settled, steps=push.message.steps)
        if settled.verdict == "applied":
            self._rollback.pushed(push.member.worker_id)
        elif settled.verdict == "discarded":
            self._refusals.count(push.peer, settled.code, settled.reason)
        settled = msgspec.structs.replace(
            settled,
            credit=self.credit(),
            settings_version=run.adjustments.version,
            watched=bool(push.member.watched_by(now=now)),
        )
        message = push.message
        if message.weight_codec is not None:
            return self._newest(push.peer, message, codec=message.weight_codec, settled=settled, epoch=run.epoch)
        steps = run.progress.global_steps
        return Send(
            push.peer,
            messages.Settled(request=message.request, epoch=run.epoch, settlement=settled, global_steps=steps),
        )

    def _newest(
        self, peer: PeerId, message: Pull | Push, *, codec: str, settled: Settlement | None = None, epoch: int
    ) -> Send:
        """The newest weights in this codec, or NOT_MODIFIED when the peer has them."""
        run, store = self._run, self._run.store if self._run else None
        is_target = isinstance(message, Pull) and message.target
        version = 0 if store is None else store.target_version if is_target else store.version
        fields: dict[str, Any] = {
            "request": message.request,
            "epoch": epoch,
            "version": version,
            "global_steps": run.progress.global_steps if run else 0,
            "target_version": store.target_version if store else 0,
            "workers": self._membership.count_alive(),
            "recalls": run.recalls if run else 0,
            "settled": settled,
        }
        if store is None or (message.have_epoch, message.have_version) == (epoch, version):
            self.not_modified += 1
            return Send(peer, messages.NotModified(**fields))
        base = message.have_version if message.have_epoch == epoch else 0
        snapshot = store.snapshot_for(codec, target=is_target, base=base)
        return Send(peer, messages.Weights(**fields, codec=snapshot.codec, base=snapshot.base), snapshot)

    def renewed(self, send: Send, *, target: bool) -> Send:
        """A reply with weights (or target weights) that waited to be sent, with the newest ones instead."""
        run, message = self._decided(), send.message
        assert isinstance(message, messages.Weights), "nothing else carries weights"
        store = run.weights
        snapshot = store.snapshot_for(message.codec, target=target, base=message.base)
        renewed = msgspec.structs.replace(
            message,
            version=snapshot.version,
            global_steps=run.progress.global_steps,
            target_version=store.target_version,
            workers=self._membership.count_alive(),
            recalls=run.recalls,
            codec=snapshot.codec,
            base=snapshot.base,
        )
        return Send(send.to, renewed, snapshot)

    def _settled_through(self, worker_id: str) -> int:
        return self._decided().ledger.accounts[worker_id].through

    def _decided(self) -> TrainingRun:
        assert self._run is not None, "nobody pushes before the run is decided"
        return self._run
