"""
The connections of the server's socket. Those that hold too much memory, or take the last descriptors, are cut off.

One unfinished message may be as long as one with a vector of the run, and all together share the push budget. Frames
may be tiny and cost many times their bytes: if memory runs short all the same, old unfinished messages are cut off. So
are peers that take no reply for long, and at once where memory is short. Who has delivered no message yet, at a locked
port whoever has no key, may send a header alone, and goes first. tcp_connections.py counts the bytes. (Linux only.)
"""

import logging
import os
import resource
import time
from collections.abc import Callable, Collection, Sequence

import zmq

from ps_common.meters import POWERS_OF_TEN
from ps_common.protocol.wire import MAX_HEADER_BYTES
from ps_common.sockets.zmq_sockets import MOST_FRAMES
from ps_server.shell.memory import bytes_in_use, give_back_freed_memory
from ps_server.shell.tcp_connections import LOOK_SECONDS, QUIET_BYTES, SLACK_BYTES, Connection, TcpConnections

SHARE = 0.02  # the share of the time that looks may take, where connections are thousands
AFTER_CUT_SECONDS = 0.25  # in which ZeroMQ has closed what was cut off
BUDGETS, VECTORS = 2, 32  # memory of the process: push budgets; vectors (weights, slots, copies sent or saved)
MOST_RESERVED = 1024  # descriptors kept free for checkpoints, records, shared memory and the next connection
OLD_SECONDS = 1.0  # without a complete message, or a reply taken: then a peer is cut off when memory is short
UNTAKEN_SECONDS = 60.0  # in which a peer takes nothing of the replies that wait for it: then it is cut off

log = logging.getLogger("ps-server")


class Connections:
    """The connections of one ROUTER. The serving thread owns them. `now` is seconds of time.monotonic."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        *,
        vector_bytes: Callable[[], int],
        run_bytes: Callable[[], int],
        budget_bytes: int,
        is_locked: bool,
    ) -> None:
        """
        To be created before the socket is bound.

        `vector_bytes`: size of the longest vector that a peer may send now; `run_bytes`: size of the weights, 0 while
        there are none; `budget_bytes`: the push budget.
        """
        self._vector_bytes, self._run_bytes = vector_bytes, run_bytes
        self._budget_bytes = budget_bytes
        self._router = router
        self._tcp = TcpConnections(context, router, is_locked=is_locked)
        self._start_bytes = bytes_in_use()
        self._look_at = 0.0
        self._give_back_at = float("inf")
        self._taken = 0  # messages since the last look at all
        self._is_drained = True  # whether the socket was empty since then
        self._cut_off = 0
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._first_reserved = self._descriptors - min(MOST_RESERVED, self._descriptors // 4)

    def __len__(self) -> int:
        """How many there are; 0 where they are not counted."""
        return len(self._tcp.by_descriptor)

    @property
    def next_look(self) -> float:
        return self._look_at if self._tcp.are_counted else float("inf")

    def delivered(self, frames: Sequence[zmq.Frame], *, now: float) -> None:
        """Count a message that was read from the socket; the first frame names its sender."""
        self._taken += 1
        connection = self._tcp.delivered(frames[1:], now=now)
        if connection is not None and len(frames) >= MOST_FRAMES:  # to read its next one would keep all others waiting
            self._cut([connection], "sends messages of too many frames", now=now)

    def drained(self) -> None:
        """The socket holds no complete message at this moment."""
        self._is_drained = True

    def look(self, *, now: float) -> None:
        """Cut off connections that hold too much, if a look is due."""
        if now < self.next_look:
            return
        began = time.thread_time()  # not of the clock: when others have the processor, looks are needed most
        self._tcp.read_monitor(now=now)
        # The socket reads its connections in turn: after as many messages as connections, each has been read.
        if self._is_drained or self._taken > len(self):
            self._taken, self._is_drained = 0, False
            self._look_at_memory(now=now)
        is_closing = self._keep_reserve(now=now)
        took = time.thread_time() - began
        self._look_at = now + max(AFTER_CUT_SECONDS if is_closing else LOOK_SECONDS, took / SHARE)
        if now >= self._give_back_at:
            self._give_back_at = float("inf")
            give_back_freed_memory()

    def close(self) -> None:
        """To be called before the context ends."""
        self._tcp.close()

    def _look_at_memory(self, *, now: float) -> None:
        self._tcp.look(now=now)
        everybody, vector_bytes = self._tcp.by_descriptor.values(), self._vector_bytes()
        # The first vector may be as long as the protocol allows.
        expected_bytes = BUDGETS * self._budget_bytes + VECTORS * self._run_bytes() + vector_bytes
        is_short = bytes_in_use() > self._start_bytes + expected_bytes
        limits = {"vector_bytes": vector_bytes, "budget_bytes": self._budget_bytes}
        cut = holding_too_much(everybody, **limits, is_short=is_short, now=now)
        untaken = [one for one in taking_nothing(everybody, is_short=is_short, now=now) if one not in cut]
        self._cut(cut, "holds much of an unfinished message in memory", now=now)
        self._cut(untaken, "takes nothing of the replies that wait for it in memory", now=now)

    def _keep_reserve(self, *, now: float) -> bool:
        """Keep some descriptors free for the server itself. Whether connections were cut off for that."""
        try:
            lowest = os.dup(self._router.fileno())  # the lowest free descriptor
            os.close(lowest)
        except OSError:  # none is free
            lowest = self._descriptors
        missing = max(0, lowest - self._first_reserved)
        self._cut(
            too_many(self._tcp.by_descriptor.values(), count=missing), "takes one of the last descriptors", now=now
        )
        return missing > 0

    def _cut(self, connections: Sequence[Connection], why: str, *, now: float) -> None:
        for connection in connections:
            if (host := self._tcp.cut(connection)) == "":
                continue
            self._give_back_at = now + 2 * AFTER_CUT_SECONDS
            self._cut_off += 1
            if self._cut_off in POWERS_OF_TEN:  # a peer that reconnects must not fill the disk
                log.warning("cut off: a connection of %s, which %s (%d connections so far)", host, why, self._cut_off)


def holding_too_much(
    connections: Collection[Connection], *, vector_bytes: int, budget_bytes: int, is_short: bool, now: float
) -> list[Connection]:
    """
    The connections to cut off now for their unfinished messages.

    `vector_bytes`: the longest vector that a peer may send, after a first message. `is_short`: memory is. When all
    together hold too much, those that have delivered nothing go first, then the one that did so longest ago.
    """
    header = MAX_HEADER_BYTES + SLACK_BYTES
    suspects = [one for one in connections if one.unfinished > QUIET_BYTES]
    total = sum(one.unfinished for one in suspects)
    too_long = {one for one in suspects if one.unfinished > header + (vector_bytes if one.has_delivered else 0)}
    cut = []
    for one in sorted(suspects, key=lambda one: (one not in too_long, one.has_delivered, one.delivered_at)):
        is_old = not one.has_delivered or now - one.delivered_at > OLD_SECONDS
        if one in too_long or total > max(budget_bytes, vector_bytes + header) or (is_short and is_old):
            cut.append(one)
            total -= one.unfinished
    return cut


def taking_nothing(connections: Collection[Connection], *, is_short: bool, now: float) -> list[Connection]:
    """The connections to cut off now for the replies that they do not take. `is_short`: memory is."""
    return [one for one in connections if now - one.taken_at > (OLD_SECONDS if is_short else UNTAKEN_SECONDS)]


def too_many(connections: Collection[Connection], *, count: int) -> list[Connection]:
    """`count` connections to cut off for their descriptors: without a message, oldest first; others, newest first."""
    expendable = sorted(connections, key=lambda one: -one.since if one.has_delivered else one.since)
    return sorted(expendable, key=lambda one: one.has_delivered)[:count]
