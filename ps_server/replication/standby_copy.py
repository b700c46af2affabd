"""
The replication backlog: the messages that one standby has not acknowledged, in order, and which of them are in flight.

The backlog measures the standby's lag. It knows neither peers nor what is durable, and drops nothing by itself.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ps_common.protocol.messages import State, Update
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import Buffer

WINDOW = 4  # messages that may be in flight, however large they are
SMALL_WINDOW, SMALL_WINDOW_BYTES = 64, 2**22  # messages that may be in flight while they are small, and all their bytes
OVERHEAD_BYTES = 1024  # what an update takes beside its vector
RESEND_SECONDS = 0.5  # without an acknowledgement, after which messages are sent again; longer for large ones
SLOWEST_BYTES_PER_SECOND = 1e6


@dataclass(frozen=True, eq=False)
class Item:
    """One message and its vector."""

    message: State | Update
    vector: Sequence[Buffer]
    size: int
    since: float


@dataclass(frozen=True)
class Lag:
    """How far a standby is behind; all 0 when it has acknowledged everything."""

    updates: int = 0
    bytes: int = 0
    seconds: float = 0.0  # the age of the oldest


class Backlog:
    """
    The queue to one standby; the state of the run comes first. `now` is seconds of any monotonic clock.

    Invariant: the first `_in_flight` items of the queue are in flight.
    """

    def __init__(self, state: State, vector: Sequence[Buffer], *, now: float) -> None:
        self.acknowledged = 0  # everything up to this number; 0 before the standby has the state
        self._progressed = now
        self._queue: deque[Item] = deque()
        self._in_flight = self._in_flight_bytes = self._bytes = 0
        self.add(state, vector, now=now)

    @property
    def update_bytes(self) -> int:
        """The bytes of everything but the state."""
        return self._bytes if self.acknowledged else self._bytes - self._queue[0].size

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, message: State | Update, vector: Sequence[Buffer], *, now: float) -> None:
        """Put a message at the end. Its vector must not change any more."""
        size = OVERHEAD_BYTES + vector_bytes(vector)
        self._queue.append(Item(message, vector, size, now))
        self._bytes += size

    def acknowledge(self, number: int, *, now: float) -> None:
        """The standby has everything up to a number."""
        while self._in_flight and self._queue[0].message.number <= number:
            item = self._queue.popleft()
            self._bytes -= item.size
            self._in_flight -= 1
            self._in_flight_bytes -= item.size
            self._progressed = now
            self.acknowledged = item.message.number

    def take(self, *, now: float) -> list[Item]:
        """The items to send now."""
        items = []
        while self._in_flight < len(self._queue) and self._has_room(item := self._queue[self._in_flight]):
            if self._in_flight == 0:
                self._progressed = now
            self._in_flight += 1
            self._in_flight_bytes += item.size
            items.append(item)
        return items

    def take_resends(self, *, now: float) -> list[Item]:
        """The items to send again, because nothing was acknowledged for too long."""
        patience = RESEND_SECONDS + self._in_flight_bytes / SLOWEST_BYTES_PER_SECOND
        if not self._in_flight or now - self._progressed <= patience:
            return []
        self._in_flight = self._in_flight_bytes = 0
        return self.take(now=now)

    def clear(self) -> None:
        """Drop every item; `acknowledged` stays."""
        self._queue.clear()
        self._in_flight = self._in_flight_bytes = self._bytes = 0

    def lag(self, *, now: float) -> Lag:
        """How far the standby is behind."""
        if not self._queue:
            return Lag()
        return Lag(len(self._queue), self._bytes, now - self._queue[0].since)

    def _has_room(self, item: Item) -> bool:
        small = self._in_flight < SMALL_WINDOW and self._in_flight_bytes + item.size <= SMALL_WINDOW_BYTES
        return small or self._in_flight < WINDOW
