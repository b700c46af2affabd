"""
What was asked of the server and is not answered yet: in which order it goes out, how much at a time, what was lost.

How losses are found: both directions of a connection keep their order, and each request is answered by one reply. So a
reply to a later request proves that an earlier unanswered one, or its reply, was lost. Only total silence needs a
clock, and that is the client's.

Few pushes are under way at a time: the server takes a push only when it is near the oldest one that it has not settled,
and a restored server may be sent thousands. Each push says, whenever it is sent, which pushes may still come: a server
that has lost its ledger learns from that where the window begins now.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from common.protocol.messages import NO_LIMIT, CreditRequest, Heartbeat, Push, ToServer
from common.protocol.tensors import vector_bytes
from common.protocol.wire import Buffer
from rl_worker.machine.effects import Transmit

PUSHES_UNDER_WAY = 16  # counted by sequence from the oldest that is unanswered; the server has room for 64


@dataclass
class Request:
    """What waits for its reply. `order` counts what was sent on this connection."""

    message: ToServer
    vector: Sequence[Buffer] = ()
    order: int = 0


class Outbox:
    """
    Requests on their way. They go out in the order of their numbers; those that overtake are said so.

    `oldest` tells the lowest sequence that may still be sent. Invariants: a request is either waiting or under way;
    every waiting one is newer than every push under way.
    """

    def __init__(self, oldest: Callable[[], int]) -> None:
        self._oldest = oldest
        self._waiting: OrderedDict[int, Request] = OrderedDict()  # by number, the lowest first
        self._under_way: dict[int, Request] = {}
        self._last_order = 0
        self.credit = NO_LIMIT  # bytes of vectors that may be under way
        self._room = 0  # bytes of the one push that the server has made room for

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def bytes_under_way(self) -> int:
        """Of the vectors that were sent and are not answered."""
        return sum(vector_bytes(request.vector) for request in self._under_way.values())

    def put(self, message: ToServer, vector: Sequence[Buffer] = ()) -> None:
        """A new request; it waits for its turn."""
        self._waiting[message.request] = Request(message, vector)

    def next(self) -> ToServer | None:
        """The request that is to go now; None when none waits, or enough pushes are under way."""
        if not self._waiting:
            return None
        message = next(iter(self._waiting.values())).message
        if isinstance(message, Push):
            pushes = (request.message for request in self._under_way.values())
            oldest = next((push.sequence for push in pushes if isinstance(push, Push)), message.sequence)
            if message.sequence >= oldest + PUSHES_UNDER_WAY:
                return None
        return message

    def has_space(self) -> bool:
        """Whether the server has room for the request that `next` has named."""
        size = self._next_bytes()
        return size == 0 or size <= self._room or self.bytes_under_way + size <= self.credit

    def credit_to_ask_for(self) -> int:
        """Bytes of the request that `next` has named, when the server must be asked whether it may go; else 0."""
        asked = any(isinstance(request.message, CreditRequest) for request in self._under_way.values())
        return 0 if asked or self._next_bytes() <= self.credit else self._next_bytes()

    def credit_granted(self, size: int) -> None:
        """The server has made room for a push of so many bytes."""
        self._room = size

    def send_next(self) -> Transmit:
        """Send the request that `next` has named."""
        request = self._waiting.popitem(last=False)[1]
        if isinstance(request.message, Push):
            self._room = 0
        return self._send(request)

    def overtake(self, message: ToServer) -> Transmit:
        """Send a new request before everything that waits."""
        return self._send(Request(message))

    def answered(self, number: int) -> Request | None:
        """The request that this reply is the first to answer; it is no longer unanswered."""
        return self._under_way.pop(number, None) or self._waiting.pop(number, None)

    def send_again_before(self, order: int) -> list[Transmit]:
        """What was sent before the request that is answered now, and is not answered itself, was lost."""
        lost = [request for request in self._under_way.values() if 0 < request.order < order]
        for request in lost:
            if isinstance(request.message, Heartbeat):
                del self._under_way[request.message.request]
        return [self._send(request) for request in lost if not isinstance(request.message, Heartbeat)]

    def start_over(self, again: Iterable[tuple[ToServer, Sequence[Buffer]]]) -> None:
        """The connection is another: everything waits again, and so do these, that had been answered before."""
        unanswered = {**self._under_way, **self._waiting}
        self._room = 0
        unanswered |= {message.request: Request(message, vector) for message, vector in again}
        self._under_way.clear()
        self._waiting.clear()
        for number in sorted(unanswered):
            request = unanswered[number]
            if not isinstance(request.message, Heartbeat | CreditRequest):
                self._waiting[number] = Request(request.message, request.vector)

    def clear(self) -> None:
        """Nothing will be answered any more."""
        self._waiting.clear()
        self._under_way.clear()

    def _next_bytes(self) -> int:
        request = next(iter(self._waiting.values()))
        return vector_bytes(request.vector) if isinstance(request.message, Push) else 0

    def _send(self, request: Request) -> Transmit:
        if isinstance(request.message, Push):
            request.message = msgspec.structs.replace(request.message, oldest=self._oldest())
        self._last_order += 1
        request.order = self._last_order
        self._under_way[request.message.request] = request
        return Transmit(request.message, request.vector)
