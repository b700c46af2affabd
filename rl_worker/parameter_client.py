"""
The worker's half of the protocol as a machine: calls and replies in, effects out.

It joins, repeats what was lost, rejoins a server that came back, and knows when to give up. It knows nothing of
sockets, threads or clocks; the shell (zmq_client.py) owns those and passes `now`, in seconds of any monotonic clock.

How losses are found: both directions of a connection keep their order, and each request is answered by one reply. So a
reply to a later request proves that an earlier unanswered one, or its reply, was lost; it is sent again at once. Only
total silence needs a clock.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common import messages
from common.codecs import CODECS
from common.errors import PsRlError, Refused, RunEnded, SchemaMismatch, ServerUnreachable
from common.messages import Episode, ToServer, ToWorker, Welcome
from common.tensors import Schema
from common.wire import Buffer
from rl_worker.effects import Effect, Fail, Joined, Note, Reconnect, Resolve, Transmit

FIRST_HELLO_SECONDS = 0.05  # until HELLO is said again; doubles up to the next number
SLOWEST_HELLO_SECONDS = 2.0
HEARTBEATS_IN_A_LEASE = 5
SILENCE_SECONDS = 5.0  # without a word from the server, after which the connection is taken for dead
SLOWEST_BYTES_PER_SECOND = 1e6  # of a link worth waiting for: what is under way prolongs the silence that is borne
NOTE_SECONDS = 10.0  # between two lines about a server that does not answer


Call = tuple[int, list[Effect]]  # the ticket that the reply will carry, and what to do now


class Phase(enum.Enum):
    JOINING = "joining"  # HELLO is under way; calls wait
    JOINED = "joined"
    OVER = "over"  # the run has ended, or cannot go on


@dataclass
class _Request:
    """What waits for its reply. `order` counts what was sent on this connection; 0: not sent on it yet."""

    message: ToServer
    vector: Sequence[Buffer] = ()
    order: int = 0


class ParameterClient:
    """
    One worker's conversation with the server.

    Calls (`seed`, `pull`, `push`, …) return a ticket and effects; the reply comes later as Resolve or Fail with the
    ticket. `wishes` are flat settings that the user asked for; `proposal` is the whole run, should none be decided.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        incarnation: int,
        wishes: dict[str, Any],
        proposal: dict[str, Any],
        host: str,
        environments: int,
        patience_seconds: float,
        now: float,
    ) -> None:
        self.phase = Phase.JOINING
        self.error: PsRlError | None = None  # why it is over
        self._who: dict[str, Any] = {
            "worker_id": worker_id,
            "incarnation": incarnation,
            "protocols": (messages.PROTOCOL_VERSION, messages.PROTOCOL_VERSION),
            "codecs": tuple(CODECS),
            "host": host,
            "environments": environments,
            "wishes": wishes,
        }
        self._proposal = proposal
        self._patience_seconds = patience_seconds
        self._welcome: Welcome | None = None  # the newest
        self._schema: Schema | None = None  # of the trainer's network, once it is known
        self._newest: tuple[str, Sequence[Buffer]] | None = None  # codec and bytes of the newest weights
        self._requests: dict[int, _Request] = {}  # unanswered, by ticket, oldest first
        self._last_ticket = self._last_order = 0
        self._pushes = self._reports = 0
        self._heard = now  # anything on this connection, or it was new
        self._reached = now  # anything at all, or the first try
        self._hello_ticket = 0
        self._hello_due = now
        self._hello_pause = FIRST_HELLO_SECONDS
        self._heartbeat_due = now
        self._note_due = now + NOTE_SECONDS

    def __repr__(self) -> str:
        return f"<ParameterClient {self.phase.value} pushes={self._pushes} unanswered={len(self._requests)}>"

    # -- calls of the trainer -----------------------------------------------------------------------------------------

    def seed(self, schema: Schema, codec: str, vector: Sequence[Buffer], *, now: float) -> Call:
        """Offer first weights; answered by Seeded. The run's schema must be this one from now on."""
        self._schema = schema
        return self._ask(messages.Seed(request=self._ticket(), schema=schema.specs, codec=codec), vector, now=now)

    def pull(self, *, have_epoch: int, have_version: int, now: float, target: bool = False) -> Call:
        """Ask for weights newer than these; answered by Weights or NotModified."""
        ticket = self._ticket()
        pull = messages.Pull(request=ticket, have_epoch=have_epoch, have_version=have_version, target=target)
        return self._ask(pull, now=now)

    def push(
        self, codec: str, vector: Sequence[Buffer], *, epoch: int, computed_on: int, steps: int, now: float
    ) -> Call:
        """Send a gradient; answered by Settled."""
        push = messages.Push(**self._push_fields(), codec=codec, epoch=epoch, computed_on=computed_on, steps=steps)
        return self._ask(push, vector, now=now)

    def push_pull(
        self, codec: str, vector: Sequence[Buffer], *, epoch: int, computed_on: int, steps: int, now: float
    ) -> Call:
        """Send a gradient and ask for weights newer than it was computed on; answered by Weights or NotModified."""
        push = messages.PushPull(
            **self._push_fields(),
            codec=codec,
            epoch=epoch,
            computed_on=computed_on,
            have_epoch=epoch,
            have_version=computed_on,
            steps=steps,
        )
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
        request = self._requests[ticket] = _Request(messages.Goodbye(request=ticket, reason=reason))
        return ticket, self._transmit(request, now=now)

    # -- what the shell calls -----------------------------------------------------------------------------------------

    def receive(self, message: ToWorker, vector: Sequence[Buffer] = (), *, now: float) -> list[Effect]:
        """One message of the server, and the buffers of its vector."""
        self._heard = self._reached = now
        self._note_due = now + NOTE_SECONDS
        match message:
            case messages.Stop():
                return self._end(RunEnded(message.reason))
            case Welcome():
                return self._welcomed(message, now=now)
            case messages.Refused(code="unknown_worker" | "no_weights"):
                # The server has forgotten us, or (it came back empty, and our SEED was lost) the weights.
                self._join_again(now=now)
                return []
            case messages.Refused() if message.request == self._hello_ticket or message.code == "bad_message":
                return self._end(Refused(message.code, message.reason))
        answered = self._requests.pop(message.request, None)
        if answered is None:
            return []  # the second answer to something that was sent twice
        effects = self._send_again_before(answered.order, now=now)
        if isinstance(answered.message, messages.Heartbeat):
            return effects
        if isinstance(message, messages.Weights) and not getattr(answered.message, "target", False):
            self._newest = (message.codec, vector)
        if isinstance(message, messages.Refused):
            return [*effects, Fail(message.request, Refused(message.code, message.reason))]
        return [*effects, Resolve(message.request, message, vector)]

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed. To be called several times a second, after everything that has arrived was received."""
        if self.phase is Phase.OVER:
            return []
        silence = now - self._reached
        if silence > self._patience_seconds:
            return self._end(ServerUnreachable(f"no answer for {silence:.0f} s; is it running, and is --server right?"))
        effects: list[Effect] = []
        if now >= self._note_due:
            self._note_due = now + NOTE_SECONDS
            effects.append(Note(f"no answer for {silence:.0f} s; still trying"))
        if now - self._heard > self._longest_silence():
            self._join_again(now=now)
            # A new connection takes a moment to stand, and what is said before that is lost: say it often at first.
            self._hello_pause, self._hello_due = FIRST_HELLO_SECONDS, now
            effects.append(Reconnect())
        if self.phase is Phase.JOINING and now >= self._hello_due:
            self._hello_due = now + self._hello_pause
            self._hello_pause = min(2 * self._hello_pause, SLOWEST_HELLO_SECONDS)
            self._hello_ticket = self._ticket()
            hello = messages.Hello(
                request=self._hello_ticket, **self._who, proposal=self._proposal, oldest=self._oldest_push()
            )
            effects.append(Transmit(hello))
        if self.phase is Phase.JOINED and now >= self._heartbeat_due:
            ticket = self._ticket()
            heartbeat = self._requests[ticket] = _Request(messages.Heartbeat(request=ticket))
            effects += self._transmit(heartbeat, now=now)
        return effects

    def next_tick(self) -> float:
        """When `tick` has something to do at the latest, on the shell's clock."""
        due = self._hello_due if self.phase is Phase.JOINING else self._heartbeat_due
        return min(due, self._note_due)

    # -- how it works -------------------------------------------------------------------------------------------------

    def _welcomed(self, welcome: Welcome, *, now: float) -> list[Effect]:
        """A member (again): the weights for a server that came back empty, then everything that is unanswered."""
        if self.phase is not Phase.JOINING:
            return []
        before, self._welcome = self._welcome, welcome
        if before is not None and (section := _changed_section(before.run, welcome.run)):
            return self._end(SchemaMismatch(f"the server came back with another [{section}]; start this worker anew"))
        if self._schema is not None and welcome.schema:
            sentence = self._schema.difference(Schema(welcome.schema))
            if sentence:
                return self._end(SchemaMismatch(f"the run trains another network: {sentence}"))
        self.phase = Phase.JOINED
        self._proposal = welcome.run
        effects: list[Effect] = [] if before is not None else [Joined(welcome)]
        if self._schema is not None and self._newest is not None and not welcome.schema:
            codec, vector = self._newest
            effects.append(Transmit(messages.Seed(request=0, schema=self._schema.specs, codec=codec), vector))
        for request in self._requests.values():
            effects += self._transmit(request, now=now)
        return effects

    def _join_again(self, *, now: float) -> None:
        """The server does not know us, or not any more."""
        self._heard = now
        self._requests = {t: r for t, r in self._requests.items() if not isinstance(r.message, messages.Heartbeat)}
        if self.phase is Phase.JOINED:
            self.phase = Phase.JOINING
            self._hello_due = now
            self._hello_pause = FIRST_HELLO_SECONDS

    def _end(self, error: PsRlError) -> list[Effect]:
        """Nothing more is to be had from this server."""
        if self.phase is Phase.OVER:
            return []
        self.phase = Phase.OVER
        self.error = error
        self._requests.clear()
        return [Fail(0, error)]

    def _ask(self, message: ToServer, vector: Sequence[Buffer] = (), *, now: float) -> Call:
        if self.error is not None:
            return message.request, [Fail(message.request, self.error)]
        request = self._requests[message.request] = _Request(message, vector)
        return message.request, self._transmit(request, now=now) if self.phase is Phase.JOINED else []

    def _transmit(self, request: _Request, *, now: float) -> list[Effect]:
        self._last_order += 1
        request.order = self._last_order
        if self._welcome is not None:
            # However long the lease is: without heartbeats there would be no answers, and that would look like silence.
            self._heartbeat_due = now + min(self._welcome.lease_seconds, SILENCE_SECONDS) / HEARTBEATS_IN_A_LEASE
        return [Transmit(request.message, request.vector)]

    def _send_again_before(self, order: int, *, now: float) -> list[Effect]:
        """What was sent before the request that is answered now, and is not answered itself, was lost."""
        effects: list[Effect] = []
        for ticket, request in list(self._requests.items()):
            if 0 < request.order < order:
                if isinstance(request.message, messages.Heartbeat):
                    del self._requests[ticket]
                else:
                    effects += self._transmit(request, now=now)
        return effects

    def _longest_silence(self) -> float:
        """Seconds: longer when large vectors are under way, in either direction."""
        sent = sum(_bytes(request.vector) for request in self._requests.values())
        expected = _bytes(self._newest[1]) if self._newest else 0
        return SILENCE_SECONDS + (sent + expected) / SLOWEST_BYTES_PER_SECOND

    def _oldest_push(self) -> int:
        """The lowest sequence that may still be sent."""
        pushes = (request.message for request in self._requests.values())
        waiting = [push.sequence for push in pushes if isinstance(push, messages.Push | messages.PushPull)]
        return min(waiting, default=self._pushes + 1)

    def _push_fields(self) -> dict[str, Any]:
        assert self._schema is not None, "a push comes after `seed`, which tells the schema"
        self._pushes += 1
        return {"request": self._ticket(), "sequence": self._pushes, "schema_hash": self._schema.hash}

    def _ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket


def _bytes(vector: Sequence[Buffer]) -> int:
    return sum(memoryview(buffer).nbytes for buffer in vector)


def _changed_section(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first section of the run that this worker was built for and that is another now; "" when there is none."""
    built_for = ("environment", "algorithm", "network")
    return next((section for section in built_for if before.get(section) != after.get(section)), "")
