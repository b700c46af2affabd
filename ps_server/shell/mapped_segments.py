"""
Mapped segments: shared memory of workers on this host, one segment for each connection, with slots for replies.

The worker lays out its segment (ps_client/shell/segment_slots.py). The server writes to a slot at most once, for the
request that offered it, and unmaps the segments of connections that no living worker uses.

A vector is copied before it is checked, so that the worker cannot change it between check and update.

A segment belongs to the first connection that names it; no other connection can map it.
"""

import errno
from collections import OrderedDict
from collections.abc import Collection, Sequence

import numpy as np

from ps_common.buffer_pool import BufferPool
from ps_common.errors import WireError
from ps_common.protocol.messages import CARRIES_VECTOR, Hello, ToServer
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.protocol.wire import Buffer, Place, Places
from ps_common.sockets.shared_memory import Segment
from ps_server.state.effects import PeerId, Send

AGAIN_SECONDS = 5.0  # until mapping is tried again after it failed
OF_ALL = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # errors that the next segment would meet, too
MOST_SLOTS = 128  # of one connection: twice the pushes that it may have under way
BUFFERS_KEPT = 4  # for the next vectors; only pushes that wait at the consistency gate need more


class Mapped:
    """A segment, and its slot for the reply to each of the newest requests that offered one."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.reply_slots: OrderedDict[int, Place] = OrderedDict()

    def offer(self, request: int, place: Place) -> None:
        """A request that gets no reply keeps its slot only until there are many newer ones."""
        self.reply_slots[request] = place
        if len(self.reply_slots) > MOST_SLOTS:
            self.reply_slots.popitem(last=False)


class MappedSegments:
    """The segments of all connections. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._offered: dict[PeerId, str] = {}  # names of segments
        self._mapped: dict[PeerId, Mapped] = {}
        self._fails_until = 0.0  # mapping failed: too many files were open, or too much memory was mapped
        self._unusable: set[PeerId] = set()  # connections whose own segment could not be mapped
        self._buffers = BufferPool(0, kept=BUFFERS_KEPT)
        self._buffer_bytes = 0

    def offer(self, peer: PeerId, hello: Hello) -> None:
        """Remember the segment that a HELLO names. It is mapped when the worker has joined."""
        self._offered[peer] = hello.memory

    def proof(self, peer: PeerId, *, now: float) -> str:
        """For WELCOME: the proof written in the worker's segment; "" when the segment cannot be mapped."""
        name = self._offered.pop(peer, "")
        known = self._mapped.get(peer)
        if known is not None and known.segment.name == name:
            return known.segment.proof
        self._unmap(peer)
        if not name or peer in self._unusable or now < self._fails_until:
            return ""
        try:
            segment = Segment.open(name)
        except OSError:
            return ""
        if segment.identity in {one.segment.identity for one in self._mapped.values()}:
            segment.close()
            return ""
        self._mapped[peer] = Mapped(segment)
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
        The vector of a message; None when the message names a segment that is no longer mapped.

        No vector of the run has more than `most_bytes`. Raises WireError when the places make no sense.
        """
        mapped = self._mapped.get(peer)
        if mapped is not None:
            mapped.reply_slots.pop(message.request, None)  # when a request is sent again, its newest slot counts alone
        if places is None:
            return vector
        if mapped is None or mapped.segment.name != places.segment:
            return None
        if places.vector is not None and (not isinstance(message, CARRIES_VECTOR) or vector):
            raise WireError(f"{type(message).__name__} carries no vector, or has it in the header")
        try:
            if places.answer is not None:
                mapped.segment.part(*places.answer)
                mapped.offer(message.request, places.answer)
            return vector if places.vector is None else [self._copy_of(mapped.segment, *places.vector, most_bytes)]
        except OSError as error:
            if error.errno in OF_ALL:
                self._fails_until = now + AGAIN_SECONDS
            else:
                self._unusable.add(peer)
            self._unmap(peer)
            return None

    def write_reply(self, send: Send) -> Places | None:
        """Write the snapshot of a reply to the slot that its request offered; None when the reply goes by wire."""
        mapped, snapshot = self._mapped.get(send.to), send.snapshot
        slot = mapped.reply_slots.pop(send.message.request, None) if mapped else None
        if mapped is None or slot is None or snapshot is None or snapshot.size > slot[1]:
            return None
        at = slot[0]
        snapshot.write_to(mapped.segment.part(at, snapshot.size))
        return Places(mapped.segment.name, (at, snapshot.size))

    def keep_only(self, peers: Collection[PeerId]) -> None:
        """Unmap the segments of all connections but these, of living workers."""
        for peer in self._mapped.keys() - peers:
            self._unmap(peer)
        for peer in self._offered.keys() - peers:
            del self._offered[peer]
        self._unusable &= set(peers)

    def _copy_of(self, segment: Segment, at: int, size: int, most_bytes: int) -> memoryview:
        if size > most_bytes:
            raise WireError(f"a vector of {size} bytes in shared memory, where none has more than {most_bytes}")
        if size > self._buffer_bytes:
            self._buffer_bytes = size
            self._buffers = BufferPool(-(-size // ELEMENT_BYTES), kept=BUFFERS_KEPT)
        copy = self._buffers.take().data.cast("B")[:size]
        np.frombuffer(copy, dtype=np.uint8)[:] = segment.part(at, size)
        return copy

    def _unmap(self, peer: PeerId) -> None:
        if (mapped := self._mapped.pop(peer, None)) is not None:
            mapped.segment.close()
