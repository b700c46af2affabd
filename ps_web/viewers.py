"""
The pages that are open: each has a bounded queue of messages.

A page that does not read fast enough is disconnected. Its browser connects again and gets the whole state anew, so a
forgotten tab costs no memory.
"""

import asyncio
from typing import Any

import msgspec

MOST_WAITING = 64  # messages of one page
MOST_VIEWERS = 100


class TooManyViewers(Exception):
    """One page more would be more than MOST_VIEWERS."""


class Viewers:
    """Sends messages to all open pages. Numbers that JSON lacks (NaN, Inf) become null."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self.arrived = asyncio.Event()  # set while at least one page is open

    def __len__(self) -> int:
        return len(self._queues)

    def send(self, kind: str, content: dict[str, Any]) -> None:
        """To every open page."""
        if not self._queues:
            return
        data = encoded(kind, content)
        for queue in list(self._queues):
            if queue.full():
                self._queues.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)  # the end of its stream
            else:
                queue.put_nowait(data)
        self._update()

    def open(self) -> "asyncio.Queue[bytes | None]":
        """The queue of a page that is opened now; None in it is the end. Raises TooManyViewers."""
        if len(self._queues) >= MOST_VIEWERS:
            raise TooManyViewers
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._queues.add(queue)
        self._update()
        return queue

    def leave(self, queue: "asyncio.Queue[bytes | None]") -> None:
        """The page of this queue is closed."""
        self._queues.discard(queue)
        self._update()

    def close(self) -> None:
        """End all streams."""
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    def _update(self) -> None:
        if self._queues:
            self.arrived.set()
        else:
            self.arrived.clear()


def encoded(kind: str, content: dict[str, Any]) -> bytes:
    """One message of a stream of server-sent events."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))
