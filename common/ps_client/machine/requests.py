"""
Requests and replies: numbers requests, sends them as order, budget and credit allow, and matches replies to them.

outbox.py decides the order, the credit and what was lost; resend_buffer.py which pushes are kept, and which are sent
again to a restored server; patience.py when retries are in vain. Whether the worker has joined is not known here.
"""

from collections.abc import Sequence

import msgspec

from ps_client.machine.effects import Effect, Fail, LogLine, Resolve, Transmit
from ps_client.machine.outbox import Outbox, Request
from ps_client.machine.patience import RefusalLoop
from ps_client.machine.resend_buffer import ResendBuffer
from ps_common.errors import RequestRefused, WireError
from ps_common.meters import POWERS_OF_TEN
from ps_common.protocol import messages
from ps_common.protocol.deltas import DELTA, WHOLE, Base
from ps_common.protocol.messages import NotModified, ToServer, ToWorker, Weights, Welcome, settlement_of
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import Buffer


class Requests:
    """The requests of one worker, on one connection after another."""

    def __init__(self, resend_bytes: int) -> None:
        self.last_ticket = 0
        self.pushes = 0
        self._weights_bytes = 0  # of the newest weights
        self._seed: Transmit | None = None  # the SEED with which the run began, until a checkpoint has its weights
        self._settings_version = self._newest_settings = 0  # of the settings here; of those at the server
        self.is_watched = False  # somebody watches this worker's game
        self._unread_deltas = 0
        self._outbox = Outbox(lambda: self.oldest)
        self.resend_buffer = ResendBuffer(resend_bytes)
        self.refusals = RefusalLoop()

    def __len__(self) -> int:
        """The number of requests without a reply."""
        return len(self._outbox)

    def next_ticket(self) -> int:
        """The number of a new request."""
        self.last_ticket += 1
        return self.last_ticket

    def next_sequence(self) -> int:
        """The sequence of a new push."""
        self.pushes += 1
        return self.pushes

    @property
    def oldest(self) -> int:
        """The lowest sequence that may still be sent."""
        return self.resend_buffer.oldest or self.pushes + 1

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the server should write a checkpoint early."""
        return self.resend_buffer.wants_checkpoint

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of vectors in flight to the server, and of the weights that may be on their way back."""
        return self._outbox.bytes_in_flight + self._weights_bytes

    def add(self, message: ToServer, vector: Sequence[Buffer], base: Base | None = None) -> None:
        """A new request. It is pending until `send_pending` sends it. A delta in its reply leads away from `base`."""
        if isinstance(message, messages.Push):
            self.resend_buffer.keep(message, vector)
        elif isinstance(message, messages.Seed):
            self._seed = Transmit(msgspec.structs.replace(message, request=0), vector)
        self._outbox.put(Request(message, vector, base))

    def send_now(self, message: ToServer) -> Transmit:
        """Send a new request before all that are pending."""
        return self._outbox.send_now(message)

    def heartbeat(self, *, stalled: bool, is_held_elsewhere: bool) -> Transmit:
        """`is_held_elsewhere`: another shard keeps a push of this worker waiting for those of others."""
        heartbeat = messages.Heartbeat(
            request=self.next_ticket(),
            save_soon=self.wants_checkpoint,
            stalled=stalled,
            waits_elsewhere=is_held_elsewhere and not self._outbox.has(messages.Push),
        )
        return self.send_now(heartbeat)

    def send_pending(self) -> list[Effect]:
        """Send the pending requests that may go now. The worker has joined."""
        effects: list[Effect] = []
        if self._settings_version != self._newest_settings and not self._outbox.has(messages.RunRequest):
            effects.append(self.send_now(messages.RunRequest(request=self.next_ticket())))
        while (message := self._outbox.next()) is not None:
            if isinstance(message, messages.Push) and not self.resend_buffer.admit(message.sequence):
                break
            if not self._outbox.has_credit():
                if size := self._outbox.credit_to_request():
                    effects.append(self.send_now(messages.CreditRequest(request=self.next_ticket(), bytes=size)))
                break
            effects.append(self._outbox.send_next())
        return effects

    def joined(self, welcome: Welcome, *, is_another_epoch: bool) -> list[Transmit]:
        """
        All requests without a reply are pending again, and so are the pushes that the server has lost.

        Returns the SEED, if the server has lost that too, since it was killed before its first checkpoint.
        """
        self._outbox.credit = welcome.credit
        self._settings_version = self._newest_settings = welcome.settings_version
        self._outbox.start_over(self.resend_buffer.lost_after(welcome.settled_through) if is_another_epoch else ())
        is_lost = self._seed is not None and not welcome.schema and not self._outbox.has(messages.Seed)
        return [self._seed] if self._seed is not None and is_lost else []

    def received(self, message: ToWorker, vector: Sequence[Buffer], *, is_joined: bool, now: float) -> list[Effect]:
        """
        A reply: the requests that it proves lost are sent again, and its call is completed, with whole weights.

        Raises PsRlError when the server settles nothing but duplicates, or no delta can be read.
        """
        self._update_from(message)
        request = self._outbox.take(message.request)
        if request is None:
            return []  # the second reply to a request that was sent twice
        # A push that the consistency gate holds has no reply yet, but is not lost.
        is_waiting = isinstance(message, messages.Alive) and message.waiting
        effects: list[Effect] = [*self._outbox.resend_before(request.order)] if is_joined and not is_waiting else []
        match request.message:
            case messages.Heartbeat() | messages.RunRequest():
                return effects
            case messages.CreditRequest(bytes=size):
                self._outbox.credit_granted(size)
                return effects
            case messages.Push(sequence=sequence):
                refused = isinstance(message, messages.Refused)
                if not (self.resend_buffer.refused(sequence) if refused else self.resend_buffer.settled(sequence)):
                    return effects  # the caller had the reply of an earlier epoch of the server
        ticket = request.caller or message.request
        if isinstance(message, messages.Refused):
            return [*effects, Fail(ticket, RequestRefused(message.code, message.reason))]
        if (settlement := settlement_of(message)) is not None:
            self.refusals.settled(settlement.verdict)
        if isinstance(message, Weights):
            try:
                message, vector = _whole(message, vector, request)
            except WireError as error:
                return [*effects, *self._pull_again(message, request, str(error), now=now)]
            if not getattr(request.message, "target", False):
                self._weights_bytes = vector_bytes(vector)
        self.refusals.replied()
        if request.caller and isinstance(message, Weights | NotModified):
            message = msgspec.structs.replace(message, request=ticket, settled=request.settled)
        return [*effects, Resolve(ticket, message, vector)]

    def check(self) -> str:
        """The violations among the requests and the pushes that are kept, as one sentence, for tests; "" without."""
        return "; ".join((*self._outbox.violations(self.resend_buffer), *self.resend_buffer.violations()))

    def clear(self) -> None:
        """The conversation is over."""
        self._outbox.clear()
        self.resend_buffer.clear()

    def _pull_again(self, weights: Weights, request: Request, why: str, *, now: float) -> list[Effect]:
        """Request the newest weights, whole, in place of a delta: the call has its reply when these have come."""
        self._unread_deltas += 1
        self.refusals.refused("delta", why, now=now)
        pull = messages.Pull(
            request=self.next_ticket(),
            target=getattr(request.message, "target", False),
            codec=WHOLE,
        )
        caller = request.caller or request.message.request
        self._outbox.put(Request(pull, caller=caller, settled=weights.settled or request.settled))
        return [LogLine(f"{why}; requesting the weights again")] if self._unread_deltas in POWERS_OF_TEN else []

    def _update_from(self, message: ToWorker) -> None:
        """The durability, credit, settings and watchers in a reply."""
        if isinstance(message, messages.RunReply):
            self._settings_version = message.settings_version
        news = message if isinstance(message, messages.Alive) else settlement_of(message)
        if news is None:
            return
        saving = news.saving if isinstance(news, messages.Alive) else None
        self.resend_buffer.durable_through(news.durable, checkpoints_succeed=saving)
        self._seed = None if news.durable else self._seed
        self._outbox.credit = news.credit
        self._newest_settings = news.settings_version
        self.is_watched = news.watched


def _whole(weights: Weights, vector: Sequence[Buffer], request: Request) -> tuple[Weights, Sequence[Buffer]]:
    """The weights with their bytes, or with those that a delta leads to. Raises WireError where it leads to none."""
    if weights.codec == DELTA:
        has = getattr(request.message, "have_version", 0)
        if request.base is None or weights.base != has:
            raise WireError(f"the server sent a delta from version {weights.base}; the worker asked for one from {has}")
        weights, vector = msgspec.structs.replace(weights, codec=WHOLE, base=0), [request.base.restored(vector)]
    return weights, vector
