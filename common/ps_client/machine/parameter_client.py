"""
The worker's half of the protocol as a machine: calls and messages in, effects out.

The machine joins, sends lost requests again, joins a restored server again, and gives up when that is due. It knows no
sockets, threads or clocks; the shell (zmq_client.py) has those and passes `now`, in seconds of any monotonic clock.

Its parts: handshake.py writes and times HELLO, and accepts or rejects a server; requests.py sends requests, again if
lost, and completes calls; patience.py times heartbeats, declares a connection dead, and gives up.
"""

from collections.abc import Sequence
from math import inf

from ps_client.machine.effects import Effect, Fail, Joined, LogLine, Phase, Reconnect, Resolve, Transmit
from ps_client.machine.handshake import BRIEF, TEMPORARY, Handshake, Identity
from ps_client.machine.patience import Heartbeats, LinkTimeout, Patience
from ps_client.machine.requests import Requests
from ps_common.errors import PsRlError, RequestRefused, RunEnded, SchemaMismatch
from ps_common.protocol import messages
from ps_common.protocol.deltas import DELTA, Base
from ps_common.protocol.messages import Episode, Run, ToServer, ToWorker, Welcome
from ps_common.protocol.names import as_text
from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import Buffer
from ps_common.release import explained

ENDED = (Phase.LEFT, Phase.OVER)  # nothing is sent unasked
Call = tuple[int, list[Effect]]  # the ticket that the reply will carry, and the effects of the call


class ParameterClient:
    """
    One worker's conversation with the server.

    Calls (`seed`, `pull`, …) return a ticket and effects; the reply comes later as Resolve or Fail with the ticket.
    Pushes of up to `resend_bytes` are kept until they are durable. Each Reconnect goes to the next of the `addresses`.
    """

    def __init__(
        self, identity: Identity, *, patience_seconds: float, resend_bytes: int, now: float, addresses: int = 1
    ) -> None:
        self.phase = Phase.JOINING
        self.error: PsRlError | None = None  # why the conversation is over
        self.is_watched = False  # whether somebody watches this worker's game
        self.is_drained = False  # whether this worker is to leave when its pushes are settled
        self.adjusted_run: Run | None = None  # the run, once its settings have changed since the first WELCOME
        self.links_elsewhere: Sequence[LinkTimeout] = ()  # of this worker, to the other shards
        self._identity = identity
        self._handshake = Handshake(addresses=addresses, now=now)
        self._heartbeats = Heartbeats(now=now)
        self.link_timeout = LinkTimeout(has_standby=addresses > 1, now=now)
        self._patience = Patience(patience_seconds, now=now)
        self._requests = Requests(resend_bytes)
        self._welcome: Welcome | None = None
        self.schema: Schema | None = None  # of the trainer's network, once it is known
        self._reports = 0

    def __repr__(self) -> str:
        return f"<ParameterClient {self.phase.value} pushes={self._requests.pushes} outstanding={len(self._requests)}>"

    # -- calls of the trainer -----------------------------------------------------------------------------------------

    def seed(self, schema: Schema, codec: str, vector: Sequence[Buffer], *, now: float) -> Call:
        """Offer first weights, unless WELCOME has shown some; the reply is Seeded. The run must have this schema."""
        self.schema = schema
        ticket = self._requests.next_ticket()
        if (welcome := self._welcome) and self.phase is Phase.JOINED and welcome.schema == schema.specs:
            seeded = messages.Seeded(request=ticket, accepted=False, version=welcome.version)
            return ticket, [Resolve(ticket, seeded, ())]
        seed = messages.Seed(request=ticket, schema=schema.specs, codec=codec)
        return self._request(seed, vector=vector, now=now)

    def pull(
        self, *, have_epoch: int, have_version: int, now: float, target: bool = False, codec: str | Base = "float32"
    ) -> Call:
        """Request weights newer than these, from a Base as a delta; the reply is Weights, whole, or NotModified."""
        pull = messages.Pull(
            request=self._requests.next_ticket(),
            have_epoch=have_epoch,
            have_version=have_version,
            target=target,
            codec=codec if isinstance(codec, str) else DELTA,
        )
        return self._request(pull, codec, now=now)

    def push(
        self,
        codec: str,
        vector: Sequence[Buffer],
        *,
        epoch: int,
        computed_on: int,
        steps: int,
        now: float,
        weight_codec: str | Base | None = None,
        norm: float = 0.0,
        blocks: tuple[str, ...] = (),
    ) -> Call:
        """
        Send a gradient in `codec`, which must not change any more: it may be sent again. The reply is Settled; with
        `weight_codec`, as in `pull`, Weights if there are newer ones, else NotModified. `norm`: of the whole gradient;
        `blocks` that it moves; () are all.
        """
        assert self.schema is not None, "a push comes after `seed`, which names the schema"
        push = messages.Push(
            request=self._requests.next_ticket(), sequence=self._requests.next_sequence(),
            schema_hash=self.schema.hash, codec=codec, epoch=epoch, computed_on=computed_on, steps=steps,
            weight_codec=DELTA if isinstance(weight_codec, Base) else weight_codec,
            have_epoch=epoch, have_version=computed_on, blocks=blocks,
            norm=norm,
        )  # fmt: skip
        return self._request(push, weight_codec, vector=vector, now=now)

    def report(self, episodes: Sequence[Episode], meters: dict[str, float], *, now: float) -> Call:
        """Report episodes and meters, even when the run is over; the reply is Noted."""
        self._reports += 1
        ticket = self._requests.next_ticket()
        report = messages.Report(request=ticket, sequence=self._reports, episodes=tuple(episodes), meters=meters)
        is_over = isinstance(self.error, RunEnded)
        return (ticket, [self._requests.send_now(report)]) if is_over else self._request(report, now=now)

    def leave(self, reason: str, *, failed: bool = False, now: float) -> Call:
        """Send GOODBYE, even when the run is over, and nothing after it; the reply is Farewell."""
        self.phase = Phase.LEFT if self.error is None else self.phase
        goodbye = messages.Goodbye(request=self._requests.next_ticket(), reason=as_text(reason), failed=failed)
        return goodbye.request, [self._requests.send_now(goodbye)]

    # -- what the shell calls -----------------------------------------------------------------------------------------

    def receive(self, message: ToWorker, vector: Sequence[Buffer] = (), *, now: float) -> list[Effect]:
        """A message of the server, and the buffers of its vector."""
        self.link_timeout.received(message, now=now)
        if isinstance(message, messages.Refused) and message.code in TEMPORARY:
            return self._turned_away(message.code, message.reason, now=now)
        if isinstance(message, Welcome) and (why := self._identity.objection(message)):
            return self._turned_away("fenced", why, now=now)
        self._handshake.refusal = ""
        self._patience.served(now=now)
        match message:
            case messages.Stop():
                return self._end(RunEnded(message.reason))
            case Welcome():
                return self._welcomed(message, now=now)
            case messages.Refused(code="unknown_worker" | "no_weights" | "outside_window"):
                return self._retry(message, now=now)
            case messages.Refused(code="bad_message"):
                return self._end(RequestRefused(message.code, explained(message.reason)))
            case messages.Refused() if self._handshake.is_refusal(message):
                return self._end(RequestRefused(message.code, message.reason))
        known = 0 if self._welcome is None else self._welcome.epoch
        epoch: int = getattr(message, "epoch", known)
        if known and epoch != known:
            if epoch > known:
                self._join_again(now=now)  # the server was restored, and does not know this worker
            return []  # the reply is not of the ledger that this worker knows
        return self._replied(message, vector, now=now)

    @property
    def has_pushed(self) -> bool:
        """Whether the trainer has made a gradient."""
        return self._requests.pushes > 0

    def tick(self, *, now: float, stalled: bool = False) -> list[Effect]:
        """
        Time has passed. To be called several times a second, after everything that has arrived was received.

        `stalled`: the trainer is stalled (StallWatch). Heartbeats report it to the server.
        """
        if self.phase in ENDED:
            return []
        refusal = self._handshake.refusal
        if (error := self._patience.error(refusal, now=now)) is not None:
            return self._end(error)
        warning = self._patience.warning(refusal, now=now)
        effects: list[Effect] = [LogLine(warning)] if warning else []
        if self.link_timeout.has_expired(self._requests.bytes_in_flight, now=now):
            effects += self.reconnect(now=now)
        if self.phase is Phase.JOINING and now >= self._handshake.due:
            ticket, silence = self._requests.next_ticket(), self._patience.silence(now=now)
            self._handshake.sent(ticket, now=now)
            effects.append(Transmit(self._identity.hello(ticket, self._requests.oldest, silence)))
        if self.phase is Phase.JOINED and now >= self._heartbeat_due():
            self._heartbeats.sent(now=now)
            self._postpone_heartbeat(now=now)
            is_held = any(link.is_held for link in self.links_elsewhere)
            effects.append(self._requests.heartbeat(stalled=stalled, is_held_elsewhere=is_held))
        return effects

    def next_tick(self) -> float:
        """When `tick` has something to do at the latest, on the shell's clock."""
        if self.phase in ENDED:
            return inf
        due = self._handshake.due if self.phase is Phase.JOINING else self._heartbeat_due()
        return min(due, self._patience.warning_due)

    def was_away(self, seconds: float, now: float) -> None:
        """The process was paused for so long, and `now` stood still."""
        self._heartbeats.was_away()
        self._patience.was_away(seconds, now=now)

    def reconnect(self, *, now: float) -> list[Effect]:
        """The link is dead, or the server has moved."""
        self._join_again(now=now)
        self._handshake.begin_on_new_connection(now=now)
        return [Reconnect()]

    # -- joining ------------------------------------------------------------------------------------------------------

    def _welcomed(self, welcome: Welcome, *, now: float) -> list[Effect]:
        """Joined (again). A server without weights gets the first ones, then all requests without a reply."""
        if self.phase is not Phase.JOINING or not self._handshake.completes(welcome):
            return []
        if self._handshake.is_premature(welcome):
            return self.reconnect(now=now)
        before, self._welcome = self._welcome, welcome
        if why := self._identity.mismatch(welcome, self.schema):
            return self._end(SchemaMismatch(why))
        if before is not None and before.run != welcome.run:
            self.adjusted_run = welcome.run
        self.phase, self.is_drained = Phase.JOINED, welcome.drained
        self._handshake.completed()
        self._identity.accept(welcome)
        joined: list[Effect] = [] if before is not None else [Joined(welcome)]
        seed = self._requests.joined(welcome, is_another_epoch=before is not None and before.epoch != welcome.epoch)
        return [*joined, *seed, *self._send_pending(now=now)]

    def _join_again(self, *, now: float) -> None:
        """The server does not know this worker, or no longer."""
        self.link_timeout.begin(now=now)
        if self.phase is Phase.JOINED:
            self.phase = Phase.JOINING
            self._handshake.begin(next_request=self._requests.last_ticket + 1, now=now)

    def _turned_away(self, code: str, why: str, *, now: float) -> list[Effect]:
        """The server does not serve this worker yet, or any longer, or serves another run."""
        if self.phase in ENDED:
            return []
        self._join_again(now=now)
        is_news = code not in BRIEF and why != self._handshake.refusal
        effects: list[Effect] = [LogLine(f"{why}; trying again")] if is_news else []
        return effects + (self.reconnect(now=now) if self._handshake.refused(code, why, now=now) else [])

    # -- requests and replies -----------------------------------------------------------------------------------------

    def _request(
        self, message: ToServer, codec: str | Base | None = None, *, now: float, vector: Sequence[Buffer] = ()
    ) -> Call:
        if self.error is not None:
            return message.request, [Fail(message.request, self.error)]
        self._requests.add(message, vector, codec if isinstance(codec, Base) else None)
        return message.request, self._send_pending(now=now)

    def _replied(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """A reply. The messages that follow from it go first, since a caller that gets its reply sends more at once."""
        if isinstance(message, messages.RunReply):
            self.adjusted_run = self._identity.run = message.run
            self.is_drained = message.drained
        try:
            effects = self._requests.received(message, vector, is_joined=self.phase is Phase.JOINED)
        except PsRlError as error:
            return self._end(error)
        self.is_watched = self._requests.is_watched
        sent = [effect for effect in effects if isinstance(effect, Transmit)]
        others = [effect for effect in effects if not isinstance(effect, Transmit)]
        if sent:
            self._postpone_heartbeat(now=now)
        if others:
            self._patience.fulfilled()
        return [*sent, *self._send_pending(now=now), *others]

    def _retry(self, refused: messages.Refused, *, now: float) -> list[Effect]:
        """A request was refused, but not finally. It is sent again, in its window."""
        if refused.code in ("unknown_worker", "no_weights"):  # or a server was restored without weights; SEED was lost
            self._join_again(now=now)
        self._patience.refused(f"refused ({refused.code}): {refused.reason}", now=now)
        return []

    def _send_pending(self, *, now: float) -> list[Effect]:
        effects = self._requests.send_pending() if self.phase is Phase.JOINED else []
        if effects:
            self._postpone_heartbeat(now=now)
        return effects

    def _heartbeat_due(self) -> float:
        return self._heartbeats.due(wants_checkpoint=self._requests.resend_buffer.wants_checkpoint)

    def _postpone_heartbeat(self, *, now: float) -> None:
        """A message was sent that will have a reply."""
        assert self._welcome is not None, "nothing but HELLO is sent before WELCOME"
        lease_seconds, timeout_seconds = self._welcome.lease_seconds, self.link_timeout.seconds
        self._heartbeats.postpone(lease_seconds=lease_seconds, timeout_seconds=timeout_seconds, now=now)

    def _end(self, error: PsRlError) -> list[Effect]:
        """The conversation is over."""
        if self.phase is Phase.OVER:
            return []
        self.phase, self.error = Phase.OVER, error
        self._requests.clear()
        return [Fail(0, error)]
