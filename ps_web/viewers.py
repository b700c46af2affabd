"""
The pages that are open: each has a bounded queue of messages of the runs that it shows.

A page that does not read fast enough is disconnected. Its browser connects again and gets the whole state anew, so a
forgotten tab costs no memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import msgspec

MOST_WAITING = 64  # messages of one page
MOST_VIEWERS = 100
RESERVED = 20  # of these, for pages that have the token


class TooManyViewers(Exception):
    """One page more would be more than MOST_VIEWERS, or would take a place that is reserved."""


class Viewers:
    """Sends messages to all open pages. Numbers that JSON lacks (NaN, Inf) become null."""

    def __init__(self) -> None:
        self._queues: dict[asyncio.Queue[bytes | None], frozenset[int]] = {}  # with the numbers of the runs
        self._shown: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def __len__(self) -> int:
        return len(self._queues)

    def shown(self, run: int) -> asyncio.Event:
        """Set while at least one page shows this run."""
        return self._shown[run]

    def send(self, kind: str, content: dict[str, Any]) -> None:
        """To every open page that shows the run of the content; without a run to every one."""
        run = content.get("run")
        readers = [queue for queue, runs in self._queues.items() if run is None or run in runs]
        if not readers:
            return
        data = encoded(kind, content)
        for queue in readers:
            if queue.full():
                del self._queues[queue]
                queue.get_nowait()
                queue.put_nowait(None)  # the end of its stream
            else:
                queue.put_nowait(data)
        self._update()

    def open(self, runs: Collection[int] = (), *, is_owner: bool = True) -> "asyncio.Queue[bytes | None]":
        """The queue of a page that shows these runs from now on; None in it is the end. Raises TooManyViewers."""
        if len(self._queues) >= (MOST_VIEWERS if is_owner else MOST_VIEWERS - RESERVED):
            raise TooManyViewers
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._queues[queue] = frozenset(runs)
        self._update()
        return queue

    def leave(self, queue: "asyncio.Queue[bytes | None]") -> None:
        """The page of this queue is closed."""
        self._queues.pop(queue, None)
        self._update()

    def close(self) -> None:
        """End all streams."""
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    def _update(self) -> None:
        shown = frozenset().union(*self._queues.values())
        for run in shown | self._shown.keys():
            (self._shown[run].set if run in shown else self._shown[run].clear)()


def encoded(kind: str, content: dict[str, Any]) -> bytes:
    """One message of a stream of server-sent events."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))
