"""
Requests that have no reply yet: their order, flow control, and which of them were lost.

Both directions of a connection keep their order, and each request has one reply. So a reply to a later request proves
that an earlier request without a reply was lost, or its reply was. Only total silence needs a clock; patience.py has
it.

Few pushes are in flight at a time: the server accepts a push only near the oldest one that it has not settled, and a
restored server may be sent thousands. Each push names, whenever it is sent, the oldest push that may still come: a
server that has lost its ledger learns the beginning of its window from that.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from ps_client.machine.effects import Transmit
from ps_common.protocol.deltas import Base
from ps_common.protocol.messages import NO_LIMIT, CreditRequest, Heartbeat, Push, Settlement, ToServer
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import Buffer

MOST_PUSHES_IN_FLIGHT = 16  # by sequence from the oldest without a reply; the server's window is 64


@dataclass
class Request:
    """A request without a reply. `base` is the version from which a delta may lead; `order` numbers what was sent on
    this connection. `caller`, if not 0, is the ticket of the call whose reply this request completes, with the
    settlement that the call's own request has brought."""

    message: ToServer
    vector: Sequence[Buffer] = ()
    base: Base | None = None
    order: int = 0
    caller: int = 0
    settled: Settlement | None = None


class Outbox:
    """
    Requests are sent in the order of their numbers, except by `send_now`.

    `oldest` returns the lowest sequence that may still be sent. Invariants: a request is either pending or in flight;
    every pending request is newer than every push in flight.
    """

    def __init__(self, oldest: Callable[[], int]) -> None:
        self._oldest = oldest
        self._pending: OrderedDict[int, Request] = OrderedDict()  # by number, the lowest first
        self._in_flight: dict[int, Request] = {}
        self._last_order = 0
        self.credit = NO_LIMIT  # bytes of vectors that may be in flight
        self._granted_bytes = 0  # for one push that is larger than the credit

    def __len__(self) -> int:
        return len(self._pending) + len(self._in_flight)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of the vectors that were sent and have no reply."""
        return sum(vector_bytes(request.vector) for request in self._in_flight.values())

    def put(self, request: Request) -> None:
        """Add a request. It is pending."""
        self._pending[request.message.request] = request

    def next(self) -> ToServer | None:
        """The first pending request; None without one, or when enough pushes are in flight."""
        if not self._pending:
            return None
        message = next(iter(self._pending.values())).message
        if isinstance(message, Push):
            pushes = (request.message for request in self._in_flight.values())
            oldest = next((push.sequence for push in pushes if isinstance(push, Push)), message.sequence)
            if message.sequence >= oldest + MOST_PUSHES_IN_FLIGHT:
                return None
        return message

    def has(self, kind: type[ToServer]) -> bool:
        """Whether a request of this kind has no reply yet."""
        return any(isinstance(one.message, kind) for one in (*self._pending.values(), *self._in_flight.values()))

    def has_credit(self) -> bool:
        """Whether the credit suffices for the request that `next` has returned."""
        size = self._next_bytes()
        return size == 0 or size <= self._granted_bytes or self.bytes_in_flight + size <= self.credit

    def credit_to_request(self) -> int:
        """Bytes of the request that `next` has returned, if credit for it must be requested now; else 0."""
        return 0 if self.has(CreditRequest) or self._next_bytes() <= self.credit else self._next_bytes()

    def credit_granted(self, size: int) -> None:
        """The server has granted a push of so many bytes."""
        self._granted_bytes = size

    def send_next(self) -> Transmit:
        """Send the request that `next` has returned."""
        request = self._pending.popitem(last=False)[1]
        if isinstance(request.message, Push):
            self._granted_bytes = 0
        return self._send(request)

    def send_now(self, message: ToServer) -> Transmit:
        """Send a new request before all that are pending."""
        return self._send(Request(message))

    def take(self, number: int) -> Request | None:
        """Remove the request with this number, because its reply has come; None if it had one before."""
        return self._in_flight.pop(number, None) or self._pending.pop(number, None)

    def resend_before(self, order: int) -> list[Transmit]:
        """Send again what was sent before this request, which has its reply. A lost heartbeat is not sent again."""
        lost = [request for request in self._in_flight.values() if 0 < request.order < order]
        for request in lost:
            if isinstance(request.message, Heartbeat):
                del self._in_flight[request.message.request]
        return [self._send(request) for request in lost if not isinstance(request.message, Heartbeat)]

    def start_over(self, again: Iterable[tuple[ToServer, Sequence[Buffer]]]) -> None:
        """On another connection or server all requests are pending again, and these pushes, which had replies, too."""
        without_reply = {**self._in_flight, **self._pending}
        self._granted_bytes = 0
        without_reply |= {message.request: Request(message, vector) for message, vector in again}
        self._in_flight.clear()
        self._pending.clear()
        for number in sorted(without_reply):
            request = without_reply[number]
            if not isinstance(request.message, Heartbeat | CreditRequest):
                self._pending[number] = replace(request, order=0)

    def violations(self, kept: Container[int]) -> Iterator[str]:
        """The violations among the requests, a sentence each; `kept` are the sequences in the resend buffer."""
        if both := self._pending.keys() & self._in_flight.keys():
            yield f"request {min(both)} is pending and in flight"
        flying = [one.message for one in self._in_flight.values() if isinstance(one.message, Push)]
        pushes = [*flying, *(one.message for one in self._pending.values() if isinstance(one.message, Push))]
        if flying and max(one.request for one in flying) > min(self._pending, default=NO_LIMIT):
            yield f"request {min(self._pending)} is pending, and a later push is in flight"
        if lost := [one.sequence for one in pushes if one.sequence not in kept]:
            yield f"push {min(lost)} has no reply, and is not kept"

    def clear(self) -> None:
        """No replies will come any more."""
        self._pending.clear()
        self._in_flight.clear()

    def _next_bytes(self) -> int:
        request = next(iter(self._pending.values()))
        return vector_bytes(request.vector) if isinstance(request.message, Push) else 0

    def _send(self, request: Request) -> Transmit:
        if isinstance(request.message, Push):
            request.message = msgspec.structs.replace(request.message, oldest=self._oldest())
        self._last_order += 1
        request.order = self._last_order
        self._in_flight[request.message.request] = request
        return Transmit(request.message, request.vector)
