"""
The parameter server as a machine: messages in, effects out.

This file decides who is heard, what each peer is told, and when the run is saved and ended; training_run.py decides
what a push does to the weights. Neither knows sockets, files or clocks: the shell (zmq_server.py) owns those and passes
`now`, in seconds of any monotonic clock.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from torch import Tensor

from common.errors import CheckpointError, SchemaMismatch
from common.protocol import messages
from common.protocol.messages import Settlement, ToServer
from common.protocol.status import Status
from common.protocol.tensors import ELEMENT_BYTES, MAX_ELEMENTS
from common.protocol.wire import Buffer
from common.settings.run_spec import Consistency
from ps_server.machine.admission import admit, incarnation_of, proof_of
from ps_server.machine.checkpoint_schedule import STALLED, CheckpointSchedule, Saving
from ps_server.machine.consistency import ConsistencyGate, WaitingPush
from ps_server.machine.effects import Effect, Exit, Note, Recall, Send
from ps_server.machine.fencing import advice, is_fenced_by
from ps_server.machine.flow_control import PushBudget
from ps_server.machine.membership import ANYBODY, REPORTS_PER_SECOND, Limits, Member, Membership, PeerId, Sender
from ps_server.machine.phases import ACCEPTS, ADMINS_ONLY, FROM_ANYBODY, Phase
from ps_server.machine.refusals import Refusals
from ps_server.machine.replication import Replication
from ps_server.machine.replies import FirstReporter, count_report, newest, renewed, status_of, status_reply, welcome
from ps_server.state.guards import Denied, codec_for_weights, seed_of
from ps_server.state.lineage import Lineage
from ps_server.state.soundness import Soundness
from ps_server.state.training_run import TrainingRun

DRAIN_SECONDS = 5.0  # how long workers have to say GOODBYE when the run ends


class ParameterServer:
    """
    The server of one run, in one epoch: `lineage` says which, also that of `run`.

    `run` is None until the first worker brings a run specification; `overrides` are flat settings from the server's own
    flags, which stand above what that worker proposes.
    """

    def __init__(
        self,
        run: TrainingRun | None,
        *,
        lineage: Lineage,
        overrides: dict[str, Any],
        limits: Limits,
        now: float,
    ) -> None:
        self.run = run
        self._lineage = lineage  # until there is a run
        self.phase = Phase.SERVING if run and run.store else Phase.EMPTY
        self.membership = Membership(limits.lease_seconds, now=now)
        self._receive_bytes = limits.receive_bytes
        self.gate = self._new_gate(run.spec.consistency if run else Consistency())
        self.budget = PushBudget(limits.receive_bytes, self.membership)
        self.refusals = Refusals(self.membership)
        self.replication = Replication()
        episodes = run.progress.episodes if run else 0
        self.checkpoints = CheckpointSchedule(
            limits.checkpoint_seconds, saved_version=self.version, episodes=episodes, now=now
        )
        self._saving = Saving(self.checkpoints, self.replication, self.refusals)
        self._first_reporter = FirstReporter()
        self.soundness = Soundness()
        self.not_modified = 0
        self.fenced = ""  # why this server is over, though the run is not
        self._overrides = overrides
        self._end_reason = ""
        self._exit_due = 0.0
        self._exited = False

    def __repr__(self) -> str:
        alive = len(self.membership.alive())
        return f"<ParameterServer {self.phase.value} version={self.version} workers={alive}>"

    @property
    def lineage(self) -> Lineage:
        """Which run this is, and which life of a server of it."""
        return self.run.lineage if self.run else self._lineage

    @property
    def epoch(self) -> int:
        """This life of a server of the run."""
        return self.lineage.epoch

    @property
    def version(self) -> int:
        """Of the weights; 0 before the run is seeded."""
        return self.run.store.version if self.run and self.run.store else 0

    @property
    def most_vector_bytes(self) -> int:
        """Of any vector that a worker may send now."""
        return max(self._vector_bytes(), 64) if self.version else ELEMENT_BYTES * MAX_ELEMENTS  # scales take some too

    # -- what the shell calls -------------------------------------------------------------------------------------

    def receive(
        self, peer: PeerId, message: ToServer, vector: Sequence[Buffer] = (), *, now: float, sender: Sender = ANYBODY
    ) -> list[Effect]:
        """One message of one peer, and the buffers of its vector. Never raises for what a peer sent."""
        if (left := self.refusals.seconds_left(peer, now=now)) > 0:
            reason = f"too much had to be refused; not heard for {left:.1f} s"
            return self.refusals.refuse(peer, "quarantined", reason, message.request, now=now)
        member = self.membership.heard_from(peer, now=now)
        legal = type(message) in ACCEPTS[self.phase]
        try:
            if not legal and self.phase is Phase.DRAINING:
                return [Send(peer, messages.Stop(reason=self._end_reason, request=message.request))]
            if member is None and type(message) not in FROM_ANYBODY:
                raise Denied("unknown_worker", "say HELLO first, on this connection")
            if not sender.is_admin and type(message) in ADMINS_ONLY:
                raise Denied("not_admin", "saving, stopping and following the run takes an admin's key")
            if is_fenced_by(message, self.run):
                reason = "the run is served in a later epoch"
                refusal = self.refusals.refuse(peer, "fenced", reason, message.request, now=now)
                address = message.address if isinstance(message, messages.Fence) else ""
                return [*refusal, *self.fence(address, epoch=message.latest_epoch)]
            if not legal and self.phase is Phase.FENCED:
                raise Denied("fenced", self.fenced)
            if not legal:
                raise Denied("no_weights", "the run has no weights yet; say SEED first")
            effects = self._answer(peer, member, message, vector, now=now, sender=sender)
        except Denied as denied:
            return self.refusals.refuse(peer, denied.code, str(denied), message.request, now=now)
        return effects + self._end_if_over(now=now)

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
        """A peer sent bytes that are no message."""
        if self.refusals.seconds_left(peer, now=now) > 0:
            return []
        return self.refusals.refuse(peer, "bad_message", reason, request=0, now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed. To be called at least once a second."""
        effects: list[Effect] = []
        for member in self.membership.expire(now=now):
            silent = now - member.last_heard
            effects.append(Note(f"{member.worker_id} has been silent for {silent:.1f} s and is gone", warning=True))
        effects += self.replication.tick(now=now)
        if self.run is not None:
            self.run.progress.tick(now=now)
            self.checkpoints.release(self.run.ledger, followed=self.replication.followed)
            effects += self._settle_ready(self.run, now=now)
        effects += self._grant_credit(now=now)
        effects += self._end_if_over(now=now)
        if self.run is not None and not self.fenced:
            effects += self._watch_weights(self.run)
            effects += self._saving.tick(self.run, now=now)
        if self.phase is Phase.DRAINING and not self._exited and (not self.membership.alive() or now >= self._exit_due):
            self._exited = True
            effects.append(Exit(self._end_reason))
        return effects

    def renewed(self, send: Send, *, target: bool) -> Send:
        """An answer with weights (or target weights) that had to wait, with the newest."""
        assert self.run is not None, "it was an answer of this run"
        return renewed(send, self.run, target=target)

    def was_away(self, seconds: float, *, now: float) -> None:
        """The shell did not listen for so long: its process was paused, or its machine asleep."""
        self.membership.prolong(seconds, now=now)

    def save(self, *, now: float) -> list[Effect]:
        """Write a checkpoint now, unless there are no weights, one is being written, or the run is another's."""
        return [] if self.run is None or self.fenced else self._saving.begin(self.run, now=now)

    def checkpoint_saved(self, path: str) -> list[Effect]:
        """The shell has completed the checkpoint that was being written."""
        assert self.run is not None, "only a seeded run is written"
        return self._saving.completed(self.run, path)

    def checkpoint_failed(self, reason: str) -> list[Effect]:
        """The shell could not write the checkpoint."""
        assert self.run is not None, "only a seeded run is written"
        return self._saving.failed(self.run, reason)

    def recalled(
        self, checkpoint: str, vectors: dict[str, Tensor], record: dict[str, Any], *, now: float
    ) -> list[Effect]:
        """The shell has read the newest sound checkpoint, of this name: the run goes on from there."""
        assert self.run is not None, "only a seeded run is recalled"
        suspects = self.soundness.suspects()
        lost = f"the weights hold NaN or Inf; applied since they were sound: pushes of {suspects}"
        if not self.soundness.returned(checkpoint):
            return self._end(f"{lost}. Going back to {checkpoint} has not helped: take smaller steps", now=now)
        try:
            self.run.go_back(vectors, record)
        except (CheckpointError, SchemaMismatch, KeyError) as error:
            return self.recall_failed(str(error), now=now)
        note = Note(f"{lost}. Going on from {checkpoint}, without the updates since", warning=True)
        return [note, *self.replication.begin_anew()]

    def recall_failed(self, reason: str, *, now: float) -> list[Effect]:
        """There is no sound checkpoint that could be read."""
        return self._end(f"the weights hold NaN or Inf, and there is nothing to go back to: {reason}", now=now)

    # -- one answer for each message ------------------------------------------------------------------------------

    def _answer(
        self,
        peer: PeerId,
        member: Member | None,
        message: ToServer,
        vector: Sequence[Buffer],
        *,
        now: float,
        sender: Sender,
    ) -> list[Effect]:
        match message:
            case messages.Hello():
                return self._hello(peer, message, key=sender.key, now=now)
            case messages.Pull():
                if member is not None and not message.target:
                    self.gate.pulled(member.worker_id, self.version)
                return [self._newest(peer, message, codec=message.codec)]
            case messages.StatusRequest():
                return [status_reply(peer, message, self.run, self.status(now=now))]
            case messages.CheckpointRequest():
                if self.version == 0:
                    raise Denied("no_weights", "there is nothing to save yet: no worker has seeded the run")
                if self.checkpoints.is_stalled:
                    raise Denied("checkpoint_failed", STALLED)
                self.checkpoints.ask(peer, message.request)
                return self.save(now=now)
            case messages.Fence():
                run_id = self.lineage.run_id
                return [Send(peer, messages.Leading(request=message.request, run_id=run_id, epoch=self.epoch))]
            case messages.StopRequest():
                return [Send(peer, messages.Stopping(request=message.request)), *self._end(message.reason, now=now)]
        assert self.run is not None, "the rest is for a run: HELLO decides it"
        match message:
            case messages.Follow():
                return self._follow(self.run, peer, message, now=now)
            case messages.Followed():
                effects = self.replication.acknowledge(peer, message, self.run, now=now)
                self.checkpoints.release(self.run.ledger, followed=self.replication.followed)
                return effects
        assert member is not None, "FROM_ANYBODY lists what strangers may say"
        match message:
            case messages.Seed():
                return self._seed(self.run, peer, message, vector, now=now)
            case messages.Push():
                if message.weight_codec is not None:
                    codec_for_weights(message.weight_codec)  # refused before anything is done
                self.budget.arrived(member)
                moves = self._stands_still(member, False)
                settled = self._push(self.run, WaitingPush(member, peer, message, vector), now=now)
                return [*moves, *settled, *self._grant_credit(now=now)]
            case messages.Report():
                return self._report(self.run, member, message, now=now)
            case messages.Heartbeat():
                alive = self._alive(self.run, member, message)
                return [alive, *self._pressed(member, message, now=now), *self._stands_still(member, message.stalled)]
            case messages.CreditRequest():
                if message.bytes > self._vector_bytes():  # room for what never comes would be kept from the others
                    raise Denied("wrong_size", f"no push of this run has {message.bytes} bytes")
                self.budget.ask(peer, message.request, message.bytes)
                return self._grant_credit(now=now)
            case messages.Goodbye():
                self.membership.leave(member)
                why = f": {message.reason}" if message.reason else ""
                farewell = Send(peer, messages.Farewell(request=message.request))
                return [farewell, Note(f"{member.worker_id} left{why}"), *self._settle_ready(self.run, now=now)]

    def _hello(self, peer: PeerId, hello: messages.Hello, *, key: str, now: float) -> list[Effect]:
        spec = admit(hello, run=self.run, lineage=self.lineage, overrides=self._overrides)
        worker = hello.worker_id
        known = self.run.ledger.accounts.get(worker) if self.run else None
        owner_lives = self.membership.may_live(worker, now=now)
        incarnation = incarnation_of(hello, known, key=key, owner_lives=owner_lives)
        if self.run is None:
            self.run = TrainingRun(spec, self.lineage, now=now)
            self.gate = self._new_gate(spec.consistency)
        self.gate.drop(worker)
        opened = messages.Opened(
            incarnation=incarnation,
            proof=proof_of(hello.secret),
            key=key,
            oldest=hello.oldest,
            environments=hello.environments or spec.environment.envs,
        )
        lost = self.run.ledger.lacking(worker, opened.proof, oldest=hello.oldest)
        account = self.run.join(worker, opened)
        joining = msgspec.structs.replace(hello, environments=opened.environments, incarnation=incarnation)
        is_back = self.membership.join(joining, peer, number=account.number, now=now)
        # One vector at first: others may be about to join too, and its first answer brings it an even share.
        lease_seconds, credit = self.membership.lease_seconds, self._credit(at_most=self._vector_bytes())
        reply = welcome(hello, self.run, account, lease_seconds=lease_seconds, credit=credit)
        effects: list[Effect] = [Send(peer, reply), Note(f"{worker} {'is back' if is_back else 'joined'}")]
        if lost:
            effects.append(Note(f"{worker} keeps {lost} pushes no more that this server lacks", warning=True))
        return effects + self.replication.forward(worker, opened, now=now)

    def _follow(self, run: TrainingRun, peer: PeerId, wish: messages.Follow, *, now: float) -> list[Effect]:
        effects = self.replication.follow(peer, wish, run, now=now)
        if run.standby != wish.address:
            run.standby = wish.address
            self.checkpoints.hurry()  # started again, this server is to ask there first who serves the run
        return effects

    def _seed(
        self, run: TrainingRun, peer: PeerId, seed: messages.Seed, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        schema, weights = seed_of(seed, vector)
        if run.store is not None:
            if sentence := run.store.schema.difference(schema):
                raise Denied("schema_mismatch", f"this run trains another network: {sentence}")
            return [Send(peer, messages.Seeded(request=seed.request, accepted=False, version=self.version))]
        run.seed(schema, weights)
        self.phase = Phase.SERVING
        seeded = messages.Seeded(request=seed.request, accepted=True, version=self.version)
        note = Note(f"seeded with {len(schema.specs)} tensors, {schema.size} parameters")
        # Saved at once: from the first checkpoint on, a killed server has something to come back with.
        return [Send(peer, seeded), note, *self.save(now=now)]

    def _push(self, run: TrainingRun, push: WaitingPush, *, now: float) -> list[Effect]:
        """Answer a push that was settled before; settle a new one, and others with it, when it is its turn."""
        if not run.is_new(push.member.worker_id, push.message):
            return [self._settled(run, push, run.settled_before(push.member.worker_id, push.message), now=now)]
        if not self.gate.admit(push, is_alive=self.membership.is_alive):
            reason = f"push {push.message.sequence} would wait here, and there is no room for it before older ones"
            raise Denied("outside_window", reason)
        return self._settle_ready(run, now=now)

    def _settle_ready(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """Settle every push whose turn has come."""
        effects: list[Effect] = []
        while self.phase is Phase.SERVING and (
            together := self.gate.next(self.membership.moving, epoch=self.epoch, version=self.version)
        ):
            settled = run.settle([(push.member.worker_id, push.message, push.vector) for push in together])
            for push in together:
                self.gate.settled(push, version=self.version)
            effects += [self._settled(run, push, one, now=now) for push, one in zip(together, settled, strict=True)]
            effects += self._forward(together, settled, now=now)
            if any(one.code == "not_finite" for one in settled):
                effects += self._watch_weights(run)
            effects += self._end_if_over(now=now)
        return effects

    def _watch_weights(self, run: TrainingRun) -> list[Effect]:
        """Weights that are not finite any more are not served for long."""
        return [Recall()] if self.soundness.is_lost(run) else []

    def _forward(self, together: Sequence[WaitingPush], settled: Sequence[Settlement], *, now: float) -> list[Effect]:
        """SendToPrimary the standby of pushes that were settled as one. To be discarded again, they need no vector."""
        effects: list[Effect] = []
        for push, one in zip(together, settled, strict=True):
            message = msgspec.structs.replace(push.message, inline=b"")
            vector = () if one.verdict == "discarded" else push.vector
            is_last = push is together[-1]
            effects += self.replication.forward(push.member.worker_id, message, vector, together=not is_last, now=now)
        return effects

    def _new_gate(self, settings: Consistency) -> ConsistencyGate:
        return ConsistencyGate(settings, self._settled_through, budget_bytes=self._receive_bytes)

    def _settled_through(self, worker_id: str) -> int:
        """The sequence up to which every push of a worker is settled."""
        assert self.run is not None, "nobody pushes before the run is decided"
        return self.run.ledger.accounts[worker_id].through

    def _settled(self, run: TrainingRun, push: WaitingPush, settled: Settlement, *, now: float) -> Send:
        """The answer to a push."""
        push.member.push_settled(settled, steps=push.message.steps)
        if settled.verdict == "applied":
            self.soundness.pushed(push.member.worker_id)
        settled = msgspec.structs.replace(settled, credit=self._credit())
        if settled.verdict == "discarded":
            self.refusals.count(push.peer, settled.code, now=now)
        if push.message.weight_codec is not None:
            return self._newest(push.peer, push.message, codec=push.message.weight_codec, settled=settled)
        steps = run.progress.global_steps
        answer = messages.Settled(
            request=push.message.request, epoch=self.epoch, settlement=settled, global_steps=steps
        )
        return Send(push.peer, answer)

    def _newest(
        self, peer: PeerId, message: messages.Pull | messages.Push, *, codec: str, settled: Settlement | None = None
    ) -> Send:
        """The newest weights, or the news that the peer has them."""
        answer = newest(peer, message, self.run, codec=codec, settled=settled, epoch=self.epoch)
        self.not_modified += isinstance(answer.message, messages.NotModified)
        return answer

    def _vector_bytes(self) -> int:
        """Of a gradient that is not compressed; 0 before the run is seeded."""
        return self.run.store.schema.bytes if self.run and self.run.store else 0

    def _credit(self, *, at_most: int = 0) -> int:
        """Bytes that a worker may have unanswered, as things are; with `at_most` no more than this."""
        credit = self.budget.credit(self._vector_bytes())
        return min(credit, at_most or credit)

    def _grant_credit(self, *, now: float) -> list[Effect]:
        """SendToPrimary those whose turn it is to push."""
        waiting = self.gate
        turns = self.budget.next_grants(held_bytes=waiting.held_bytes, holds=waiting.holds_any, now=now)
        return [Send(peer, messages.CreditGrant(request=request)) for peer, request in turns]

    def _report(self, run: TrainingRun, member: Member, report: messages.Report, *, now: float) -> list[Effect]:
        if report.sequence > run.ledger.accounts[member.worker_id].reported:
            if not member.reports.allows(now=now):
                raise Denied("too_often", f"more than {REPORTS_PER_SECOND:g} reports a second do not count")
            run.check_report(member.worker_id, report, unsettled=self.gate.steps_of(member.worker_id))
        is_first = self._first_reporter.is_first(member.number, now=now)
        noted = messages.Noted(request=report.request, sequence=report.sequence, first=is_first)
        effects: list[Effect] = [Send(member.peer, noted)]
        reported = count_report(run, member.worker_id, report, is_first=is_first, now=now)
        if reported is not None:
            member.meters = reported.meters
            effects += [reported, *self.replication.forward(member.worker_id, report, now=now)]
        return effects

    def _stands_still(self, member: Member, stalled: bool) -> list[Effect]:
        """A worker says whether its trainer stands still, in words or by a push. The others' turns come with `tick`."""
        if member.stalled == stalled:
            return []
        member.stalled = stalled
        now_what = "has made no step for much longer than ever before; nobody waits for it" if stalled else "goes on"
        return [Note(f"{member.worker_id} {now_what}", warning=stalled)]

    def _pressed(self, member: Member, heartbeat: messages.Heartbeat, *, now: float) -> list[Effect]:
        """A worker's resend buffer is half full, perhaps of pushes that a standby alone keeps from being durable."""
        if not heartbeat.save_soon or not self.checkpoints.waits_for_standby:
            return []
        return self.replication.worker_waits(member.worker_id, now=now)

    def _alive(self, run: TrainingRun, member: Member, heartbeat: messages.Heartbeat) -> Send:
        account = run.ledger.accounts[member.worker_id]
        if heartbeat.save_soon:
            self.checkpoints.hurry_for(member.worker_id, account)
        alive = messages.Alive(
            request=heartbeat.request,
            epoch=self.epoch,
            version=self.version,
            global_steps=run.progress.global_steps,
            durable=account.durable,
            holding=self.gate.holds(member.worker_id) or self.budget.waits(member.peer),
            credit=self._credit(),
            saving=not self.checkpoints.failing,
        )
        return Send(member.peer, alive)

    def status(self, *, now: float) -> Status:
        """How the run is; an immutable value that any thread may have."""
        return status_of(
            self.run,
            self.membership.all(),
            phase=self.phase.value,
            run_id=self.lineage.run_id,
            epoch=self.epoch,
            ending=self._end_reason,
            refused=dict(self.refusals.counts),
            not_modified=self.not_modified,
            checkpoint_version=self.checkpoints.saved_version,
            checkpoint_failures=self.checkpoints.failures,
            standby=self.replication.status(now=now),
            now=now,
        )

    # -- the end of the run -----------------------------------------------------------------------------------------

    def _end_if_over(self, *, now: float) -> list[Effect]:
        reason = self.run.end_reason(now=now) if self.run else ""
        return self._end(reason, now=now) if reason else []

    def _end(self, reason: str, *, now: float) -> list[Effect]:
        """The run is over: tell everyone, save, and exit when the workers have left."""
        if self.phase in (Phase.DRAINING, Phase.FENCED):
            return []
        self.phase = Phase.DRAINING
        self._end_reason, self._exit_due = reason, now + DRAIN_SECONDS
        self.gate.drop_all()
        stops = [Send(member.peer, messages.Stop(reason=reason)) for member in self.membership.alive()]
        told = [*stops, *self.replication.end(reason)]
        return [Note(f"the run is over: {reason}"), *told, *self.save(now=now)]

    def fence(self, address: str, *, epoch: int) -> list[Effect]:
        """
        Another server has the run in this epoch, at `address` if known.

        This server changes nothing more, tells everybody, and exits.
        """
        assert self.run is not None, "nobody takes over what is no run yet"
        self.phase = Phase.FENCED
        address = address or self.run.standby
        self.run.lineage = self.run.lineage.replaced(address, epoch=epoch)
        self.fenced = advice(address)
        self.gate.drop_all()
        refusal = messages.Refused(request=0, code="fenced", reason=self.fenced)
        told = [Send(member.peer, refusal) for member in self.membership.alive()]
        return [*told, Exit(self.fenced)]
