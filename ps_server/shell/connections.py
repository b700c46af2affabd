"""
The connections of the server's socket. Those that hold too much memory, or take the last descriptors, are cut off.

One unfinished message of a member may be as long as a message with a vector of the run, one of a stranger as long as a
header; all together share the push budget. Frames may be tiny and cost many times their bytes: if memory runs short
all the same, unfinished messages of strangers are cut off, and old ones of workers. So are peers that take no reply for
long, and at once where memory is short. tcp_connections.py counts the bytes. (Linux only.)
"""

import logging
import os
import resource
import time
from collections.abc import Callable, Collection, Sequence

import zmq

from ps_common.program.resources import bytes_in_use, give_back_freed_memory
from ps_common.protocol.wire import MAX_HEADER_BYTES
from ps_common.sockets.tcp_connections import LOOK_SECONDS, QUIET_BYTES, SLACK_BYTES, Connection, TcpConnections
from ps_common.sockets.zmq_sockets import MOST_FRAMES
from ps_server.state.effects import PeerId

FULL_LOOK_SECONDS = 0.25  # between two checks of every connection, unless memory has grown
GROWN_BYTES = 2**24
SHARE = 0.02  # the share of the time that checks may take, where connections are thousands
BUDGETS, VECTORS = 2, 32  # memory of the process: push budgets; vectors (weights, slots, copies sent or saved)
MOST_RESERVED = 1024  # descriptors kept free for checkpoints, records, shared memory and the next connection
OLD_SECONDS = 1.0  # without a complete message, or a reply taken: then a peer is cut off when memory is short
UNTAKEN_SECONDS = 60.0  # in which a peer takes nothing of the replies that wait for it: then it is cut off

IsKnown = Callable[[PeerId | None], bool]

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
        is_known: IsKnown,
        budget_bytes: int,
        is_locked: bool,
    ) -> None:
        """
        To be created before the socket is bound.

        `vector_bytes`: size of the longest vector that a peer may send now; `run_bytes`: size of the weights, 0 while
        there are none; `budget_bytes`: the push budget.
        """
        self._vector_bytes, self._run_bytes, self._is_known = vector_bytes, run_bytes, is_known
        self._budget_bytes = budget_bytes
        self._router = router
        self._tcp = TcpConnections(context, router, is_locked=is_locked)
        self._start_bytes = self._looked_bytes = bytes_in_use()
        self._look_at = self._full_look_at = self._count_at = 0.0
        self._give_back_at = float("inf")
        self._taken = 0  # messages since the last full check
        self._is_drained = True  # whether the socket was empty since then
        self._cut_off = 0
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._first_reserved = self._descriptors - min(MOST_RESERVED, self._descriptors // 4)

    def __len__(self) -> int:
        """How many there are; 0 where they are not counted."""
        return len(self._tcp.by_descriptor)

    @property
    def next_look(self) -> float:
        """When the next `look` is due."""
        return self._look_at if self._tcp.are_counted else float("inf")

    def delivered(self, frames: Sequence[zmq.Frame], *, now: float) -> None:
        """Count a message that was read from the socket; the first frame names its sender."""
        self._taken += 1
        connection = self._tcp.delivered(frames[1:], peer=frames[0].bytes, now=now)
        if connection is not None and len(frames) >= MOST_FRAMES:  # to read its next one would keep all others waiting
            self._cut([connection], "sends messages of too many frames")

    def drained(self) -> None:
        """The socket holds no complete message at this moment."""
        self._is_drained = True

    def look(self, *, now: float) -> None:
        """Cut off connections that hold too much. Cheap, unless memory has grown or some time has passed."""
        if now < self.next_look:
            return
        self._look_at = now + LOOK_SECONDS
        self._tcp.read_monitor(now=now)
        self._keep_reserve(now=now)
        # The socket reads its connections in turn: after so many messages, each that waited has been read.
        is_round = self._is_drained or self._taken > len(self)
        used = bytes_in_use()
        if is_round and (now >= self._full_look_at or used > self._looked_bytes + GROWN_BYTES):
            began = time.thread_time()  # not of the clock: when others have the processor, looks are needed most
            self._look_at_all(used, now=now)
            self._looked_bytes = used
            took = time.thread_time() - began
            self._full_look_at = now + max(FULL_LOOK_SECONDS, took / SHARE)
            self._look_at = now + max(LOOK_SECONDS, took / SHARE)
        if now >= self._give_back_at:
            self._give_back_at = float("inf")
            give_back_freed_memory()

    def close(self) -> None:
        """To be called before the context ends."""
        self._tcp.close()

    def _look_at_all(self, used: int, *, now: float) -> None:
        self._tcp.look(now=now)
        self._taken, self._is_drained = 0, False
        everybody = self._tcp.by_descriptor.values()
        is_short = used > self._start_bytes + self._expected_bytes()
        cut = holding_too_much(
            everybody,
            vector_bytes=self._vector_bytes(),
            budget_bytes=self._budget_bytes,
            is_short=is_short,
            is_known=self._is_known,
            now=now,
        )
        untaken = [one for one in taking_nothing(everybody, is_short=is_short, now=now) if one not in cut]
        self._cut(cut, "holds much of an unfinished message in memory")
        self._cut(untaken, "takes nothing of the replies that wait for it in memory")
        if cut or untaken:
            self._give_back_at = now + 2 * FULL_LOOK_SECONDS

    def _expected_bytes(self) -> int:
        """What the process may take beyond its start. The first vector may be as long as the protocol allows."""
        return BUDGETS * self._budget_bytes + VECTORS * self._run_bytes() + self._vector_bytes()

    def _keep_reserve(self, *, now: float) -> None:
        """Keep some descriptors free for the server itself."""
        if now < self._count_at:
            return
        try:
            lowest = os.dup(self._router.fileno())  # the lowest free descriptor
            os.close(lowest)
        except OSError:  # none is free
            lowest = self._descriptors
        if lowest > self._first_reserved:
            missing = lowest - self._first_reserved
            everybody = self._tcp.by_descriptor.values()
            self._cut(
                one_too_many(everybody, count=missing, is_known=self._is_known), "takes one of the last descriptors"
            )
            self._count_at = now + FULL_LOOK_SECONDS  # ZeroMQ has closed them by then

    def _cut(self, connections: Sequence[Connection], why: str) -> None:
        for connection in connections:
            if (host := self._tcp.cut(connection)) == "":
                continue
            self._cut_off += 1
            if self._cut_off & (self._cut_off - 1) == 0:  # 1, 2, 4, …: a peer that reconnects must not fill the disk
                who = "a worker" if self._is_known(connection.peer) else "an unknown peer"
                log.warning(
                    "cut off: a connection of %s at %s, which %s (%d connections so far)", who, host, why, self._cut_off
                )


def holding_too_much(
    connections: Collection[Connection],
    *,
    vector_bytes: int,
    budget_bytes: int,
    is_short: bool,
    is_known: IsKnown,
    now: float,
) -> list[Connection]:
    """
    The connections to cut off now for their unfinished messages.

    `vector_bytes`: the longest vector that a member may send; a stranger sends none. `is_short`: memory is. When all
    together hold too much, unknown peers go first, then the one that has delivered nothing for longest.
    """
    longest = vector_bytes + MAX_HEADER_BYTES + SLACK_BYTES
    suspects = [one for one in connections if one.unfinished > QUIET_BYTES]
    total = sum(one.unfinished for one in suspects)
    too_long = {one for one in suspects if one.unfinished > longest - (0 if is_known(one.peer) else vector_bytes)}
    cut = []
    for one in sorted(suspects, key=lambda one: (one not in too_long, is_known(one.peer), one.delivered_at)):
        is_expendable = not is_known(one.peer) or now - one.delivered_at > OLD_SECONDS
        if one in too_long or total > max(budget_bytes, longest) or (is_short and is_expendable):
            cut.append(one)
            total -= one.unfinished
    return cut


def taking_nothing(connections: Collection[Connection], *, is_short: bool, now: float) -> list[Connection]:
    """The connections to cut off now for the replies that they do not take. `is_short`: memory is."""
    return [one for one in connections if now - one.taken_at > (OLD_SECONDS if is_short else UNTAKEN_SECONDS)]


def one_too_many(connections: Collection[Connection], *, count: int, is_known: IsKnown) -> list[Connection]:
    """`count` connections to cut off for their descriptors: unknown peers, oldest first; then workers, newest first."""
    unknown = [one for one in connections if not is_known(one.peer)]
    workers = [one for one in connections if is_known(one.peer)]
    unknown.sort(key=lambda one: one.since)
    workers.sort(key=lambda one: one.since, reverse=True)
    return [*unknown, *workers][:count]
