"""
The requests of one worker: numbered, sent as order, budget and credit allow, and completed by their replies.

Both directions of a connection keep their order, and each request has one reply. So a reply to a later request proves
that an earlier request without a reply was lost, or its reply was. Only total silence needs a clock; patience.py has
it.

Few pushes are in flight at a time: the server accepts a push only near the oldest one that it has not settled, and a
restored server may be sent thousands. Each push names, whenever it is sent, the oldest push that may still come: a
server that has lost its ledger learns the beginning of its window from that.

resend_buffer.py decides which pushes are kept, and which are sent again to a restored server. Whether the worker has
joined is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from ps_client.machine.effects import Effect, Fail, Resolve, Transmit
from ps_client.machine.resend_buffer import ResendBuffer
from ps_common.errors import RequestRefused, WireError
from ps_common.protocol import messages
from ps_common.protocol.deltas import DELTA, WHOLE, Base
from ps_common.protocol.messages import (
    NO_LIMIT,
    CreditRequest,
    Heartbeat,
    Push,
    ToServer,
    ToWorker,
    Weights,
    Welcome,
    settlement_of,
)
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import Buffer

MOST_PUSHES_IN_FLIGHT = 16  # by sequence from the oldest without a reply; the server's window is 64


@dataclass
class Request:
    """A request without a reply; `base` is the version from which a delta may lead, `order` its number on this
    connection."""

    message: ToServer
    vector: Sequence[Buffer] = ()
    base: Base | None = None
    order: int = 0


class Requests:
    """
    The requests of one worker, on one connection after another, sent in the order of their numbers but for `send_now`.

    Invariants: a request is either pending or in flight; every pending request is newer than every push in flight.
    """

    def __init__(self, resend_bytes: int) -> None:
        self.last_ticket = 0
        self.pushes = 0
        self.is_watched = False  # somebody watches this worker's game
        self.resend_buffer = ResendBuffer(resend_bytes)
        self._pending: dict[int, Request] = {}  # by number, the lowest first
        self._in_flight: dict[int, Request] = {}
        self._last_order = 0
        self._credit = NO_LIMIT  # bytes of vectors that may be in flight
        self._granted_bytes = 0  # for one push that is larger than the credit
        self._weights_bytes = 0  # of the newest weights
        self._seed: Transmit | None = None  # the SEED with which the run began, until a checkpoint has its weights
        self._settings_version = self._newest_settings = 0  # versions of the settings here, and at the server

    def __len__(self) -> int:
        """The number of requests without a reply."""
        return len(self._pending) + len(self._in_flight)

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
    def bytes_in_flight(self) -> int:
        """Bytes of vectors in flight to the server, and of the weights that may be on their way back."""
        return self._sent_bytes + self._weights_bytes

    def has(self, kind: type[ToServer]) -> bool:
        """Whether a request of this kind has no reply yet."""
        return any(isinstance(one.message, kind) for one in (*self._pending.values(), *self._in_flight.values()))

    def add(self, message: ToServer, vector: Sequence[Buffer], base: Base | None = None) -> None:
        """A new request. It is pending until `send_pending` sends it. A delta in its reply leads away from `base`."""
        if isinstance(message, Push):
            self.resend_buffer.keep(message, vector)
        elif isinstance(message, messages.Seed):
            self._seed = Transmit(msgspec.structs.replace(message, request=0), vector)
        self._pending[message.request] = Request(message, vector, base)

    def send_now(self, message: ToServer) -> Transmit:
        """Send a new request before all that are pending."""
        return self._send(Request(message))

    def heartbeat(self, *, stalled: bool, is_held_elsewhere: bool) -> Transmit:
        """`is_held_elsewhere`: another shard keeps a push of this worker waiting for those of others."""
        heartbeat = Heartbeat(
            request=self.next_ticket(),
            save_soon=self.resend_buffer.wants_checkpoint,
            stalled=stalled,
            waits_elsewhere=is_held_elsewhere and not self.has(Push),
        )
        return self.send_now(heartbeat)

    def send_pending(self) -> list[Effect]:
        """Send the pending requests that may go now. The worker has joined."""
        effects: list[Effect] = []
        if self._settings_version != self._newest_settings and not self.has(messages.RunRequest):
            effects.append(self.send_now(messages.RunRequest(request=self.next_ticket())))
        while (request := self._sendable()) is not None:
            self._pending.pop(request.message.request, None)
            effects.append(self._send(request))
            if isinstance(request.message, Push):
                self._granted_bytes = 0
        return effects

    def joined(self, welcome: Welcome, *, is_another_epoch: bool) -> list[Transmit]:
        """
        All requests without a reply are pending again, and so are the pushes that the server has lost.

        Returns the SEED, if the server has lost that too, since it was killed before its first checkpoint.
        """
        self._credit, self._granted_bytes = welcome.credit, 0
        self._settings_version = self._newest_settings = welcome.settings_version
        without_reply = {**self._in_flight, **self._pending}
        for message, vector in self.resend_buffer.lost_after(welcome.settled_through) if is_another_epoch else ():
            without_reply[message.request] = Request(message, vector)
        self._in_flight.clear()
        self._pending = {
            number: replace(request, order=0)
            for number, request in sorted(without_reply.items())
            if not isinstance(request.message, Heartbeat | CreditRequest)
        }
        is_lost = self._seed is not None and not welcome.schema and not self.has(messages.Seed)
        return [self._seed] if self._seed is not None and is_lost else []

    def received(self, message: ToWorker, vector: Sequence[Buffer], *, is_joined: bool) -> list[Effect]:
        """
        A reply: the requests that it proves lost are sent again, and its call is completed, with whole weights.

        Raises WireError for a delta that cannot be read.
        """
        self._update_from(message)
        request = self._in_flight.pop(message.request, None) or self._pending.pop(message.request, None)
        if request is None:
            return []  # the second reply to a request that was sent twice
        # A push that the consistency gate holds has no reply yet, but is not lost.
        is_waiting = isinstance(message, messages.Alive) and message.waiting
        effects: list[Effect] = self._resend_before(request.order) if is_joined and not is_waiting else []
        match request.message:
            case Heartbeat() | messages.RunRequest():
                return effects
            case CreditRequest(bytes=size):
                self._granted_bytes = size
                return effects
            case Push(sequence=sequence):
                refused = isinstance(message, messages.Refused)
                if not (self.resend_buffer.refused(sequence) if refused else self.resend_buffer.settled(sequence)):
                    return effects  # the caller had the reply of an earlier epoch of the server
        if isinstance(message, messages.Refused):
            return [*effects, Fail(message.request, RequestRefused(message.code, message.reason))]
        if isinstance(message, Weights):
            message, vector = _whole(message, vector, request)
            if not getattr(request.message, "target", False):
                self._weights_bytes = vector_bytes(vector)
        return [*effects, Resolve(message.request, message, vector)]

    def clear(self) -> None:
        """The conversation is over."""
        self._pending.clear()
        self._in_flight.clear()
        self.resend_buffer.clear()

    def _sendable(self) -> Request | None:
        """The first pending request, if window, budget and credit allow it; or one for credit that it needs first."""
        request = next(iter(self._pending.values()), None)
        if request is None or not isinstance(request.message, Push):
            return request
        sequence, size = request.message.sequence, vector_bytes(request.vector)
        pushes = (one.message for one in self._in_flight.values())
        oldest = next((push.sequence for push in pushes if isinstance(push, Push)), sequence)
        if sequence >= oldest + MOST_PUSHES_IN_FLIGHT or not self.resend_buffer.admit(sequence):
            return None
        if size == 0 or size <= self._granted_bytes or self._sent_bytes + size <= self._credit:
            return request
        if size <= self._credit or self.has(CreditRequest):
            return None
        return Request(CreditRequest(request=self.next_ticket(), bytes=size))

    def _send(self, request: Request) -> Transmit:
        if isinstance(request.message, Push):
            request.message = msgspec.structs.replace(request.message, oldest=self.oldest)
        self._last_order += 1
        request.order = self._last_order
        self._in_flight[request.message.request] = request
        return Transmit(request.message, request.vector)

    def _resend_before(self, order: int) -> list[Effect]:
        """Send again what was sent before this request, which has its reply. A lost heartbeat is not sent again."""
        lost = [request for request in self._in_flight.values() if 0 < request.order < order]
        for request in lost:
            if isinstance(request.message, Heartbeat):
                del self._in_flight[request.message.request]
        return [self._send(request) for request in lost if not isinstance(request.message, Heartbeat)]

    @property
    def _sent_bytes(self) -> int:
        """Bytes of the vectors that were sent and have no reply."""
        return sum(vector_bytes(request.vector) for request in self._in_flight.values())

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
        self._credit = news.credit
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
