"""
The replication backlog: what one standby has not acknowledged, in order, and which of it is under way.

The backlog measures the standby's lag. It knows neither peers nor promises, and forgets nothing by itself.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from common.protocol.messages import State, Update
from common.protocol.tensors import vector_bytes
from common.protocol.wire import Buffer

WINDOW = 4  # messages that may be under way, however large they are
SMALL_WINDOW, SMALL_WINDOW_BYTES = 64, 2**22  # messages that may be under way while they are small, and all their bytes
OVERHEAD_BYTES = 1024  # of an update beside its vector
AGAIN_SECONDS = 0.5  # without progress, until what is under way is sent again; longer when it is large
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
    Begins with the state of the run. `now` is seconds of any monotonic clock.

    Invariant: the first `_under_way` items of the queue have been sent.
    """

    def __init__(self, state: State, vector: Sequence[Buffer], *, now: float) -> None:
        self.acknowledged = 0  # the number up to which the standby has everything; 0 before it has the state
        self._progressed = now
        self._queue: deque[Item] = deque()
        self._under_way = self._under_way_bytes = self._bytes = 0
        self.add(state, vector, now=now)

    @property
    def update_bytes(self) -> int:
        """Of everything but the state."""
        return self._bytes if self.acknowledged else self._bytes - self._queue[0].size

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, message: State | Update, vector: Sequence[Buffer], *, now: float) -> None:
        """The next message. Its vector must not change any more."""
        size = OVERHEAD_BYTES + vector_bytes(vector)
        self._queue.append(Item(message, vector, size, now))
        self._bytes += size

    def acknowledge(self, number: int, *, now: float) -> None:
        """The standby has everything up to a number."""
        while self._under_way and self._queue[0].message.number <= number:
            item = self._queue.popleft()
            self._bytes -= item.size
            self._under_way -= 1
            self._under_way_bytes -= item.size
            self._progressed = now
            self.acknowledged = item.message.number

    def take(self, *, now: float) -> list[Item]:
        """What is to be sent now."""
        items = []
        while self._under_way < len(self._queue) and self._has_room(item := self._queue[self._under_way]):
            if self._under_way == 0:
                self._progressed = now
            self._under_way += 1
            self._under_way_bytes += item.size
            items.append(item)
        return items

    def take_again(self, *, now: float) -> list[Item]:
        """What was under way without progress for too long, and is to be sent again."""
        patience = AGAIN_SECONDS + self._under_way_bytes / SLOWEST_BYTES_PER_SECOND
        if not self._under_way or now - self._progressed <= patience:
            return []
        self._under_way = self._under_way_bytes = 0
        return self.take(now=now)

    def clear(self) -> None:
        """The standby will be sent nothing of it any more; what it has acknowledged stays."""
        self._queue.clear()
        self._under_way = self._under_way_bytes = self._bytes = 0

    def lag(self, *, now: float) -> Lag:
        """How far the standby is behind."""
        if not self._queue:
            return Lag()
        return Lag(len(self._queue), self._bytes, now - self._queue[0].since)

    def _has_room(self, item: Item) -> bool:
        small = self._under_way < SMALL_WINDOW and self._under_way_bytes + item.size <= SMALL_WINDOW_BYTES
        return small or self._under_way < WINDOW
