"""
The memory that workers of this host lend: one segment for each connection, and the slots in it for answers.

A worker decides what lies where (rl_worker/shell/segment_slots.py). Here it is seen to that a slot is written at most
once, for the request that it was lent with, and that nothing is kept of a connection that no living worker uses.

A vector is copied before anybody looks at it: what was judged is what is applied, whatever its worker writes there
meanwhile.

A file is believed to one connection only, the first that names it.
"""

from collections.abc import Collection, Sequence

import numpy as np

from common.buffer_pool import BufferPool
from common.errors import WireError
from common.protocol.messages import CARRIES_VECTOR, Hello, ToServer
from common.protocol.wire import Buffer, Place, Places
from common.sockets.shared_memory import Segment
from ps_server.machine.membership import PeerId
from ps_server.state.weight_store import Snapshot

AGAIN_SECONDS = 5.0  # until memory is tried again when none could be mapped
BUFFERS_KEPT = 4  # for the next vectors; more are in use only while pushes wait for the consistency gate


class Lent:
    """A segment, and the place for the answer to each request that has lent one."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.answers: dict[int, Place] = {}


class MappedSegments:
    """By connection."""

    def __init__(self) -> None:
        self._offered: dict[PeerId, str] = {}  # names
        self._mapped: dict[PeerId, Lent] = {}
        self._fails_until = 0.0  # nothing could be mapped: too many files were open, or too much memory was mapped
        self._buffers = BufferPool(0, kept=BUFFERS_KEPT)
        self._buffer_bytes = 0

    def offered(self, peer: PeerId, hello: Hello) -> None:
        """A worker has said HELLO, and is not a member yet."""
        self._offered[peer] = hello.memory

    def proof(self, peer: PeerId, *, now: float) -> str:
        """For WELCOME: what stands in the segment that this worker offers; "" when that cannot be had."""
        name = self._offered.pop(peer, "")
        known = self._mapped.get(peer)
        if known is not None and known.segment.name == name:
            return known.segment.proof
        self._let_go(peer)
        if not name or now < self._fails_until:
            return ""
        try:
            segment = Segment.open(name)
        except OSError:
            return ""
        if segment.identity in {lent.segment.identity for lent in self._mapped.values()}:
            segment.close()
            return ""
        self._mapped[peer] = Lent(segment)
        return segment.proof

    def take(
        self,
        peer: PeerId,
        message: ToServer,
        vector: Sequence[Buffer],
        places: Places | None,
        *,
        most_bytes: int,
        now: float,
    ) -> Sequence[Buffer] | None:
        """
        The vector of a message that has arrived; None when it lay in memory that is no longer lent.

        No vector of the run has more than `most_bytes`. Raises WireError when the places make no sense.
        """
        lent = self._mapped.get(peer)
        if lent is not None:
            lent.answers.pop(message.request, None)  # repeated: the answer goes where it is wanted now
        if places is None:
            return vector
        if lent is None or lent.segment.name != places.segment:
            return None
        if places.vector is not None and (not isinstance(message, CARRIES_VECTOR) or vector):
            raise WireError(f"{type(message).__name__} carries no vector, or has it in the header")
        try:
            if places.answer is not None:
                lent.segment.part(*places.answer)
                lent.answers[message.request] = places.answer
            return vector if places.vector is None else [self._copy_of(lent.segment, *places.vector, most_bytes)]
        except OSError:
            self._fails_until = now + AGAIN_SECONDS
            self._let_go(peer)
            return None

    def answer(self, peer: PeerId, request: int, snapshot: Snapshot | None) -> Places | None:
        """Write the answer to where it is wanted; None when it has to go by the wire, or is none."""
        lent = self._mapped.get(peer)
        place = lent.answers.pop(request, None) if lent else None
        if lent is None or place is None or snapshot is None or snapshot.size > place[1]:
            return None
        at = place[0]
        snapshot.write_to(lent.segment.part(at, snapshot.size))
        return Places(lent.segment.name, (at, snapshot.size))

    def keep_only(self, peers: Collection[PeerId]) -> None:
        """Let go of all but the connections of living workers."""
        for peer in self._mapped.keys() - peers:
            self._let_go(peer)
        for peer in self._offered.keys() - peers:
            del self._offered[peer]

    def _copy_of(self, segment: Segment, at: int, size: int, most_bytes: int) -> memoryview:
        """These bytes, in a buffer that is used again when nobody holds them. Raises OSError, WireError."""
        if size > most_bytes:
            raise WireError(f"a vector of {size} bytes in shared memory, where none has more than {most_bytes}")
        if size > self._buffer_bytes:
            self._buffer_bytes = size
            self._buffers = BufferPool(-(-size // 4), kept=BUFFERS_KEPT)
        copy = self._buffers.take().data.cast("B")[:size]
        np.frombuffer(copy, dtype=np.uint8)[:] = segment.part(at, size)
        return copy

    def _let_go(self, peer: PeerId) -> None:
        if (lent := self._mapped.pop(peer, None)) is not None:
            lent.segment.close()
