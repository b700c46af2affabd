"""
The pages that are open: each has a bounded queue of messages of the runs that it shows.

Of the present and of a game's frames a page only gets the newest: a slow link gets fewer of them, and all rows. A
page that does not read what is left fast enough is disconnected. Its browser connects again and gets the whole state
again, so a forgotten tab costs no memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import msgspec

MOST_WAITING_BYTES = 2**22  # of one page; pages that show the same runs share them
MOST_VIEWERS = 100
RESERVED = 20  # of these, for pages that have the token
NEWEST_ALONE = {"now", "frame"}  # kinds of which a newer message stands for those before it


class TooManyViewers(Exception):
    """One page more would be more than MOST_VIEWERS, or would take a place that is reserved."""


class Waiting:
    """The messages that one page is yet to be sent."""

    def __init__(self) -> None:
        self._messages: dict[object, bytes] = {}  # in order; of a kind and a run where only the newest is kept
        self._bytes = 0
        self._is_over = False
        self._news = asyncio.Event()

    def put(self, kind: str, run: int | None, data: bytes) -> bool:
        """Add a message. False when too much waits already: then nothing is added any more."""
        key: object = (kind, run) if kind in NEWEST_ALONE else object()
        if self._bytes - len(self._messages.get(key, b"")) > MOST_WAITING_BYTES:
            self._messages.clear()
            self._bytes = 0
            self.end()
            return False
        if kind == "run":  # it says all that "now" says
            self._drop(("now", run))
        self._bytes += len(data) - len(self._messages.get(key, b""))
        self._messages[key] = data
        self._news.set()
        return True

    def end(self) -> None:
        """After what waits the stream ends."""
        self._is_over = True
        self._news.set()

    async def get(self) -> bytes | None:
        """The next message; None at the end of the stream."""
        while not self._messages and not self._is_over:
            self._news.clear()
            await self._news.wait()
        return self._drop(next(iter(self._messages))) if self._messages else None

    def _drop(self, key: object) -> bytes:
        data = self._messages.pop(key, b"")
        self._bytes -= len(data)
        return data


class Viewers:
    """Sends messages to all open pages. Numbers that JSON lacks (NaN, Inf) become null."""

    def __init__(self) -> None:
        self._pages: dict[Waiting, frozenset[int]] = {}  # with the numbers of the runs
        self._shown: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def __len__(self) -> int:
        return len(self._pages)

    def shown(self, run: int) -> asyncio.Event:
        """Set while at least one page shows this run."""
        return self._shown[run]

    def send(self, kind: str, content: dict[str, Any]) -> None:
        """To every open page that shows the run of the content; without a run to every one."""
        run = content.get("run")
        readers = [page for page, runs in self._pages.items() if run is None or run in runs]
        if not readers:
            return
        data = encoded(kind, content)
        for page in readers:
            if not page.put(kind, run, data):
                del self._pages[page]
        self._update()

    def open(self, runs: Collection[int] = (), *, is_owner: bool = True) -> Waiting:
        """What waits for a page that shows these runs from now on. Raises TooManyViewers."""
        if len(self._pages) >= (MOST_VIEWERS if is_owner else MOST_VIEWERS - RESERVED):
            raise TooManyViewers
        page = Waiting()
        self._pages[page] = frozenset(runs)
        self._update()
        return page

    def leave(self, page: Waiting) -> None:
        """This page is closed."""
        self._pages.pop(page, None)
        self._update()

    def close(self) -> None:
        """End all streams."""
        for page in self._pages:
            page.end()

    def _update(self) -> None:
        shown = frozenset().union(*self._pages.values())
        for run in shown | self._shown.keys():
            (self._shown[run].set if run in shown else self._shown[run].clear)()


def encoded(kind: str, content: dict[str, Any]) -> bytes:
    """One message of a stream of server-sent events."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))
