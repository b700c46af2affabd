"""
The worker's half of the protocol as a machine: calls and replies in, effects out.

It joins, repeats what was lost, rejoins a server that came back, and knows when to give up. It knows nothing of
sockets, threads or clocks; the shell (zmq_client.py) owns those and passes `now`, in seconds of any monotonic clock.

outbox.py decides what is sent when, and what was lost; resend_buffer.py which pushes a server that came back is sent
again; introduction.py who the worker is, and which server it believes; link_timeout.py when a connection is dead;
refusal_loop.py when answers lead nowhere.
"""

import enum
from collections.abc import Sequence
from typing import Any

from common.errors import PsRlError, RequestRefused, RunEnded, SchemaMismatch, ServerUnreachable
from common.protocol import messages
from common.protocol.messages import Episode, ToServer, ToWorker, Welcome, settlement_of
from common.protocol.names import as_text
from common.protocol.tensors import Schema, vector_bytes
from common.protocol.wire import Buffer
from common.settings.run_settings import flag_of, flat_settings
from rl_worker.machine.effects import Effect, Fail, Joined, Note, Reconnect, Resolve, Transmit
from rl_worker.machine.introduction import Introduction
from rl_worker.machine.link_timeout import LinkTimeout
from rl_worker.machine.outbox import Outbox
from rl_worker.machine.refusal_loop import Stuck
from rl_worker.machine.resend_buffer import ResendBuffer

FIRST_HELLO_SECONDS = 0.05  # until HELLO is said again; doubles up to the next number
SLOWEST_HELLO_SECONDS = 2.0
HEARTBEATS_IN_A_LEASE = 5
TURNED_AWAY_HELLO_SECONDS = 0.1  # until HELLO is said again to a server that does not serve the run
TURNED_AWAY_SECONDS = 1.0  # of only this, until the next address is tried
PLEA_SECONDS = 0.25  # between two requests for an early checkpoint
# What HELLO may be refused with, that time may change: for moments while a standby takes over, and for longer.
BRIEFLY = {"standby", "lacking", "fenced"}
TURNED_AWAY = {*BRIEFLY, "other_run", "name_taken"}
NAME_TAKEN_SECONDS = 60.0  # until a worker whose name another process has ends; leases of the dead are shorter
NOTE_SECONDS = 10.0  # between two lines about a server that does not answer


Call = tuple[int, list[Effect]]  # the ticket that the reply will carry, and what to do now


class Phase(enum.Enum):
    JOINING = "joining"  # HELLO is under way; calls wait
    JOINED = "joined"
    OVER = "over"  # the run has ended, or cannot go on


class ParameterClient:
    """
    One worker's conversation with the server.

    Calls (`seed`, `pull`, `push`, …) return a ticket and effects; the reply comes later as Resolve or Fail with the
    ticket. `secret` is a random text that nobody else knows; `overrides` are flat settings that the user asked for;
    `proposed_run` is the whole run, should none be decided. Pushes of up to `resend_bytes` are kept until they are
    durable. With several `addresses`, a primary's and its standby's, each Reconnect goes to the next.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        secret: str,
        overrides: dict[str, Any],
        proposed_run: dict[str, Any],
        host: str,
        environments: int,
        patience_seconds: float,
        resend_bytes: int,
        now: float,
        addresses: int = 1,
    ) -> None:
        self.phase = Phase.JOINING
        self.error: PsRlError | None = None  # why it is over
        self.is_first = False  # what one worker alone does for the run falls to this one; other threads may read it
        self._introduction = Introduction(
            worker_id=worker_id,
            secret=secret,
            overrides=overrides,
            proposed_run=proposed_run,
            host=host,
            environments=environments,
        )
        self._patience_seconds = patience_seconds
        self._welcome: Welcome | None = None  # the newest
        self._addresses = addresses
        self._link_timeout = LinkTimeout(has_choice=addresses > 1, now=now)
        self._turned_away: float | None = None  # when first, on this connection
        self._turned_away_why = ""
        self._name_taken: float | None = None  # since when another process has the name
        self._schema: Schema | None = None  # of the trainer's network, once it is known
        self._newest: tuple[str, Sequence[Buffer]] | None = None  # codec and bytes of the newest weights
        self._resend_buffer = ResendBuffer(resend_bytes)
        self._outbox = Outbox(self._oldest)
        self._stuck = Stuck()
        self._last_ticket = 0
        self._pushes = self._reports = 0
        self._reached = now  # anything at all, or the first try
        self._first_hello = self._hello_ticket = 0  # since this worker has to join; the newest
        self._hello_due = now
        self._hello_pause = FIRST_HELLO_SECONDS
        self._heartbeat_due = self._plea_due = now
        self._note_due = now + NOTE_SECONDS

    def __repr__(self) -> str:
        return f"<ParameterClient {self.phase.value} pushes={self._pushes} unanswered={len(self._outbox)}>"

    # -- calls of the trainer -----------------------------------------------------------------------------------------

    def seed(self, schema: Schema, codec: str, vector: Sequence[Buffer], *, now: float) -> Call:
        """Offer first weights; answered by Seeded. The run's schema must be this one from now on."""
        self._schema = schema
        return self._ask(messages.Seed(request=self._ticket(), schema=schema.specs, codec=codec), vector, now=now)

    def pull(
        self, *, have_epoch: int, have_version: int, now: float, target: bool = False, codec: str = "float32"
    ) -> Call:
        """Ask for weights newer than these; answered by Weights or NotModified."""
        ticket = self._ticket()
        pull = messages.Pull(
            request=ticket, have_epoch=have_epoch, have_version=have_version, target=target, codec=codec
        )
        return self._ask(pull, now=now)

    def push(
        self,
        codec: str,
        vector: Sequence[Buffer],
        *,
        epoch: int,
        computed_on: int,
        steps: int,
        now: float,
        weight_codec: str | None = None,
    ) -> Call:
        """
        Send a gradient in `codec`; answered by Settled.

        With `weight_codec` the reply is Weights in that codec, if there are newer ones than the gradient was computed
        on, and else NotModified. The gradient must not change any more: it may be sent again after the reply.
        """
        assert self._schema is not None, "a push comes after `seed`, which names the schema"
        self._pushes += 1
        push = messages.Push(
            request=self._ticket(),
            sequence=self._pushes,
            schema_hash=self._schema.hash,
            codec=codec,
            epoch=epoch,
            computed_on=computed_on,
            steps=steps,
            weight_codec=weight_codec,
            have_epoch=epoch,
            have_version=computed_on,
        )
        self._resend_buffer.keep(push, vector)
        return self._ask(push, vector, now=now)

    def report(self, episodes: Sequence[Episode], meters: dict[str, float], *, now: float) -> Call:
        """Tell what was seen; answered by Noted."""
        self._reports += 1
        report = messages.Report(
            request=self._ticket(), sequence=self._reports, episodes=tuple(episodes), meters=meters
        )
        return self._ask(report, now=now)

    def leave(self, reason: str, *, now: float) -> Call:
        """Say GOODBYE; answered by Farewell. Said even when the run is over."""
        ticket = self._ticket()
        return ticket, [self._outbox.overtake(messages.Goodbye(request=ticket, reason=as_text(reason)))]

    # -- what the shell calls -----------------------------------------------------------------------------------------

    def receive(self, message: ToWorker, vector: Sequence[Buffer] = (), *, now: float) -> list[Effect]:
        """One message of the server, and the buffers of its vector."""
        self._link_timeout.heard(message, now=now)
        if isinstance(message, messages.Refused) and message.code in TURNED_AWAY:
            return self._turn_away(message.code, message.reason, now=now)
        if isinstance(message, Welcome) and (why := self._introduction.objection(message)):
            return self._turn_away("fenced", why, now=now)
        self._reached = now
        self._turned_away_why = ""
        self._note_due = now + NOTE_SECONDS
        match message:
            case messages.Stop():
                return self._end(RunEnded(message.reason))
            case Welcome():
                return self._welcomed(message, now=now)
            case messages.Refused(code="unknown_worker" | "no_weights" | "quarantined" | "outside_window"):
                return self._try_again(message, now=now)
            case messages.Refused() if message.request == self._hello_ticket or message.code == "bad_message":
                return self._end(RequestRefused(message.code, message.reason))
        if (
            self._welcome is not None
            and (epoch := getattr(message, "epoch", self._welcome.epoch)) != self._welcome.epoch
        ):
            if epoch > self._welcome.epoch:
                self._join_again(now=now)  # a server that came back: it does not know us
            return []  # its ledger is not the one that the answer is of
        answered = self._answered(message, vector, now=now)
        sent = [effect for effect in answered if isinstance(effect, Transmit)]
        told = [effect for effect in answered if not isinstance(effect, Transmit)]
        # What is sent goes first: what a caller asks for when he is told is sent after it, as it is counted.
        return [*sent, *self._send_waiting(now=now), *told]

    @property
    def has_pushed(self) -> bool:
        """Whether the trainer has made a gradient; other threads may ask."""
        return self._pushes > 0

    def tick(self, *, now: float, stalled: bool = False) -> list[Effect]:
        """
        Time has passed. To be called several times a second, after everything that has arrived was received.

        `stalled`: the trainer stands still (stall_watch.py), which heartbeats tell the server.
        """
        if self.phase is Phase.OVER:
            return []
        silence = now - self._reached
        if silence > self._patience_seconds:
            ask = "" if self._turned_away_why else "; is it running, are --server and keys right?"
            return self._end(ServerUnreachable(self._trouble(silence) + ask))
        effects: list[Effect] = []
        if complaint := self._stuck.complaint:
            self._stuck.complaint = ""
            effects.append(Note(complaint))
        if now >= self._note_due:
            self._note_due = now + NOTE_SECONDS
            effects.append(Note(f"{self._trouble(silence)}; still trying"))
        expected = vector_bytes(self._newest[1]) if self._newest else 0
        if self._link_timeout.is_too_long(self._outbox.bytes_under_way + expected, now=now):
            effects += self._reconnect(now=now)
        if self.phase is Phase.JOINING and now >= self._hello_due:
            self._hello_due = now + self._hello_pause
            self._hello_pause = min(2 * self._hello_pause, SLOWEST_HELLO_SECONDS)
            self._hello_ticket = self._ticket()
            hello = self._introduction.hello(request=self._hello_ticket, oldest=self._oldest())
            effects.append(Transmit(hello))
        if self.phase is Phase.JOINED and now >= self._next_heartbeat():
            self._plea_due = now + PLEA_SECONDS
            self._put_heartbeat_off(now=now)
            save_soon = self._resend_buffer.should_be_saved
            heartbeat = messages.Heartbeat(request=self._ticket(), save_soon=save_soon, stalled=stalled)
            effects.append(self._outbox.overtake(heartbeat))
        return effects

    def next_tick(self) -> float:
        """When `tick` has something to do at the latest, on the shell's clock."""
        due = self._hello_due if self.phase is Phase.JOINING else self._next_heartbeat()
        return min(due, self._note_due)

    # -- how it works -------------------------------------------------------------------------------------------------

    def _welcomed(self, welcome: Welcome, *, now: float) -> list[Effect]:
        """A member (again): the weights for a server that came back empty, then everything that is unanswered."""
        if self.phase is not Phase.JOINING or welcome.request < self._first_hello:
            return []
        before, self._welcome = self._welcome, welcome
        if before is None:
            self.is_first = welcome.number == 0  # until the server knows who reports
        if before is not None and (setting := _changed_setting(before.run, welcome.run)):
            why = f"the server came back with another {setting}, which workers have from their start"
            return self._end(SchemaMismatch(f"{why}; start this worker anew"))
        if self._schema is not None and welcome.schema:
            sentence = self._schema.difference(Schema(welcome.schema))
            if sentence:
                return self._end(SchemaMismatch(f"the run trains another network: {sentence}"))
        self.phase = Phase.JOINED
        self._turned_away = self._name_taken = None
        self._outbox.credit = welcome.credit
        if is_another := self._introduction.believe(welcome):
            self._resend_buffer.forget_answered()  # they are part of the weights that a lost run goes on with
        if is_another or (before is not None and before.epoch != welcome.epoch):
            self._outbox.start_over(self._resend_buffer.lacking(welcome.settled_through))
        else:
            self._outbox.start_over(())
        effects: list[Effect] = [] if before is not None else [Joined(welcome)]
        if is_another:
            effects.append(Note(f"run {welcome.run_id} goes on with this worker's, whose checkpoints are lost"))
        if self._schema is not None and self._newest is not None and not welcome.schema:
            codec, vector = self._newest
            effects.append(Transmit(messages.Seed(request=0, schema=self._schema.specs, codec=codec), vector))
        return effects + self._send_waiting(now=now)

    def _answered(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """A reply: what it proves lost, and the call that has waited for it."""
        self._learn(message)
        request = self._outbox.answered(message.request)
        if request is None:
            return []  # the second answer to something that was sent twice
        effects: list[Effect] = []
        # A push that waits for its turn at the server is not lost because a heartbeat is answered before it.
        holding = isinstance(message, messages.Alive) and message.holding
        if self.phase is Phase.JOINED and not holding and (again := self._outbox.send_again_before(request.order)):
            effects += again
            self._put_heartbeat_off(now=now)
        if isinstance(message, messages.Weights) and not getattr(request.message, "target", False):
            self._newest = (message.codec, vector)
        match request.message:
            case messages.Heartbeat():
                return effects
            case messages.CreditRequest(bytes=size):
                self._outbox.credit_granted(size)
                return effects
            case messages.Push(sequence=sequence):
                refused = isinstance(message, messages.Refused)
                if not (self._resend_buffer.refused(sequence) if refused else self._resend_buffer.settled(sequence)):
                    return effects  # its caller had the answer of a former life of the server
        if isinstance(message, messages.Refused):
            return [*effects, Fail(message.request, RequestRefused(message.code, message.reason))]
        self._stuck.answered()
        settlement = settlement_of(message)
        if settlement is not None and (error := self._stuck.settled(settlement.verdict)) is not None:
            return self._end(error)
        return [*effects, Resolve(message.request, message, vector)]

    def _try_again(self, refused: messages.Refused, *, now: float) -> list[Effect]:
        """Not the last word: what was asked is in the outbox still. A conversation of nothing else is ended."""
        if (error := self._stuck.refused(refused.code, refused.reason, now=now)) is not None:
            return self._end(error)
        if refused.code in ("unknown_worker", "no_weights"):
            # The server has forgotten us, or (it came back empty, and our SEED was lost) the weights.
            self._join_again(now=now)
        # The outbox keeps to the window: a push outside it was sent before WELCOME, to a server with a shorter ledger
        # than its former life had.
        return []

    def _learn(self, message: ToWorker) -> None:
        """What the server says by the way: what is durable, how much may be under way, and who is the first worker."""
        if isinstance(message, messages.Noted):
            self.is_first = message.first
        elif isinstance(message, messages.Alive):
            self._resend_buffer.saved(message.durable, saving=message.saving)
            self._outbox.credit = message.credit
        elif (settled := settlement_of(message)) is not None:
            self._resend_buffer.saved(settled.durable)
            self._outbox.credit = settled.credit

    def _join_again(self, *, now: float) -> None:
        """The server does not know us, or not any more."""
        self._link_timeout.begin(now=now)
        if self.phase is Phase.JOINED:
            self.phase = Phase.JOINING
            self._first_hello = self._last_ticket + 1
            self._hello_due = now
            self._hello_pause = FIRST_HELLO_SECONDS

    def _reconnect(self, *, now: float) -> list[Effect]:
        self._join_again(now=now)
        self._turned_away = None
        # A new connection takes a moment to stand, and what is said before that is lost: say it often at first.
        self._hello_pause, self._hello_due = FIRST_HELLO_SECONDS, now
        return [Reconnect()]

    def _turn_away(self, code: str, why: str, *, now: float) -> list[Effect]:
        """Who listens there does not serve this worker: not yet, not its run, or not any more."""
        if self.phase is Phase.OVER:
            return []
        self._join_again(now=now)
        if code == "name_taken":
            self._name_taken = now if self._name_taken is None else self._name_taken
            if now - self._name_taken > NAME_TAKEN_SECONDS:
                return self._end(RequestRefused(code, why))
        effects: list[Effect] = []
        if code not in BRIEFLY and why != self._turned_away_why:
            effects.append(Note(f"{why}; trying again"))
        if code in BRIEFLY:
            self._hello_pause, self._hello_due = FIRST_HELLO_SECONDS, now + TURNED_AWAY_HELLO_SECONDS
        self._turned_away_why = why
        if self._turned_away is None:
            self._turned_away = now
        is_enough = code == "fenced" or now - self._turned_away > TURNED_AWAY_SECONDS
        return effects + (self._reconnect(now=now) if is_enough and self._addresses > 1 else [])

    def _trouble(self, silence: float) -> str:
        why = self._turned_away_why
        return f"not served for {silence:.0f} s: {why}" if why else f"no answer for {silence:.0f} s"

    def _end(self, error: PsRlError) -> list[Effect]:
        """Nothing more is to be had from this server."""
        if self.phase is Phase.OVER:
            return []
        self.phase = Phase.OVER
        self.error = error
        self._outbox.clear()
        self._resend_buffer.clear()
        return [Fail(0, error)]

    def _ask(self, message: ToServer, vector: Sequence[Buffer] = (), *, now: float) -> Call:
        if self.error is not None:
            return message.request, [Fail(message.request, self.error)]
        self._outbox.put(message, vector)
        return message.request, self._send_waiting(now=now)

    def _send_waiting(self, *, now: float) -> list[Effect]:
        """What waits and may go now."""
        effects: list[Effect] = []
        while self.phase is Phase.JOINED and (message := self._outbox.next()) is not None:
            if isinstance(message, messages.Push) and not self._resend_buffer.admit(message.sequence):
                break
            if not self._outbox.has_space():
                if size := self._outbox.credit_to_ask_for():
                    ask = messages.CreditRequest(request=self._ticket(), bytes=size)
                    effects.append(self._outbox.overtake(ask))
                break
            effects.append(self._outbox.send_next())
        if effects:
            self._put_heartbeat_off(now=now)
        return effects

    def _put_heartbeat_off(self, *, now: float) -> None:
        """Something is sent, and will be answered."""
        assert self._welcome is not None, "nothing but HELLO is sent before WELCOME"
        # However long the lease is: without heartbeats there would be no answers, and that would look like silence.
        self._heartbeat_due = now + min(self._welcome.lease_seconds, self._link_timeout.seconds) / HEARTBEATS_IN_A_LEASE

    def _next_heartbeat(self) -> float:
        """When one is due; sooner when the server should be asked for a checkpoint."""
        return min(self._heartbeat_due, self._plea_due) if self._resend_buffer.should_be_saved else self._heartbeat_due

    def _oldest(self) -> int:
        """The lowest sequence that may still be sent."""
        return self._resend_buffer.oldest or self._pushes + 1

    def _ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket


def _changed_setting(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The flag of the first setting that this worker was built for and that is another now; "" when there is none."""
    built_for = [
        flat_settings({section: run.get(section) for section in ("environment", "algorithm", "network", "wire")})
        for run in (before, after)
    ]
    return next(
        (flag_of(key) for key in built_for[0] | built_for[1] if built_for[0].get(key) != built_for[1].get(key)), ""
    )
