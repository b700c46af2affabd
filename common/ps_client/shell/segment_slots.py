"""
The slots of the segment that a worker shares with its server: which slot each message uses, and when a slot is free.

The worker alone allocates slots. It copies a vector into a free slot and names the slot in the message. With every
request for weights it also names a free reply slot, into which the server may write its one reply. Both slots are in
use until the request has its reply; a slot that holds weights is in use until nothing reads them any more.

Weights are therefore never torn: the server writes to a slot only between a request and its reply, and a request that
is sent again names no slot (the server then drops the slot of the first one, see ps_server/shell/mapped_segments.py).
A reply that names a segment of a former connection is dropped.

A gradient may also be made in a slot, and is then sent without a copy. These slots are separate, and their number
grows with the resend buffer. Such a slot is free again when nothing references its array; the sender references it
until the push has its reply. The slot that was freed last is used first, so that no more are touched than are in use at
once.

Vectors go by the wire where there is no segment or no free slot, or the vector is too large.
"""

import logging
import weakref
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from ps_common.errors import WireError
from ps_common.protocol.messages import Hello, Pull, Push, ToServer, ToWorker, Welcome
from ps_common.protocol.tensors import ELEMENT_BYTES, vector_bytes
from ps_common.protocol.wire import Buffer, Place, Places, read_to_worker, take_places, to_frames, with_places
from ps_common.sockets.shared_memory import PAGE_BYTES, Bytes, Segment

COUNT = 3  # the newest weights, those that are requested, and the gradient in flight
LEAST_BYTES = 2**16  # smaller vectors are as fast by the wire

log = logging.getLogger("rl-worker")


class SegmentSlots:
    """Turns messages into frames and back. One thread uses it; only the arrays that it returns are used by others."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._offered_in = 0  # request number of the first HELLO that names the segment
        self._is_answered = False  # a WELCOME has come since
        self._is_proven = False  # WELCOME has shown that the server maps the segment
        self._slot_bytes = 0  # 0: no slots yet
        self._free: deque[int] = deque()  # offsets of free slots
        self._used: dict[int, list[int]] = {}  # offsets that the server may read or write, by request number
        self._largest = 0  # bytes of a vector so far
        self._array_slots: dict[int, int] = {}  # offsets of slots that arrays are in, by the array's address
        self._array_free: list[int] = []  # offsets of slots for arrays, the newest free one last
        self._count = COUNT  # of all slots

    def to_frames(self, message: ToServer, vector: Sequence[Buffer]) -> list[Buffer]:
        """The frames of a message; its vector goes by a slot if possible."""
        if isinstance(message, Hello):
            return to_frames(self._with_offer(message))
        self._largest = max(self._largest, vector_bytes(vector))
        places = self._places(message, vector)
        if places is None:
            return to_frames(message, vector)
        return with_places(to_frames(message, vector if places.vector is None else ()), places)

    def array(self, size: int) -> np.ndarray | None:
        """An array [size] of float32 in a slot, to be sent without a copy; None where there is no slot."""
        if self._segment is None or ELEMENT_BYTES * size > self._slot_bytes:
            return None
        try:
            if not self._array_free:
                self._reserve_more()
            # Not `view`: views of a view reference the mapping, not this array, and its slot would be freed too early.
            array = np.frombuffer(self._segment.part(self._array_free[-1], ELEMENT_BYTES * size).data, dtype=np.float32)
        except (OSError, WireError) as error:
            log.debug("no further memory can be shared: %s", error)
            return None
        at = self._array_free.pop()
        address = array.ctypes.data
        self._array_slots[address] = at
        weakref.finalize(array, _free_array, address, self._array_slots, self._array_free).atexit = False
        return array

    def read(self, frames: Sequence[Buffer]) -> tuple[ToWorker, Sequence[Buffer]] | None:
        """A message and its vector; None when the vector is in a segment of a former connection. Raises WireError."""
        frames, places = take_places(frames)
        message, vector = read_to_worker(frames)
        if isinstance(message, Welcome):
            self._welcomed(message)
        ended = self._used.pop(message.request, [])
        if places is not None and (self._segment is None or places.segment != self._segment.name):
            return None
        if places is not None and places.vector is not None:
            vector = [self._reply_in_slot(places.vector, ended)]
        self._free.extend(ended)
        return message, vector

    def release(self) -> None:
        """The connection is closed. Arrays that were returned stay valid."""
        if self._segment is not None:
            self._segment.close()
        self._segment, self._is_answered, self._is_proven, self._slot_bytes = None, False, False, 0
        self._free, self._used = deque(), {}
        self._array_slots, self._array_free, self._count = {}, [], COUNT

    def _with_offer(self, hello: Hello) -> Hello:
        """Offer a segment; a new one after each WELCOME, because another server may receive the next HELLO."""
        if self._segment is None or self._is_answered:
            self.release()
            try:
                self._segment = Segment.make()
            except OSError as error:
                log.debug("no memory can be shared: %s", error)
                return hello
            self._offered_in = hello.request
        return msgspec.structs.replace(hello, memory=self._segment.name)

    def _welcomed(self, welcome: Welcome) -> None:
        if self._segment is not None and welcome.request >= self._offered_in:
            self._is_answered = True
            self._is_proven = welcome.memory == self._segment.proof

    def _places(self, message: ToServer, vector: Sequence[Buffer]) -> Places | None:
        """The slots of this vector and of its reply; None: by the wire."""
        number = message.request
        size = vector_bytes(vector)
        wants_weights = isinstance(message, Pull) or (isinstance(message, Push) and message.weight_codec is not None)
        # Several messages may have the number 0.
        if self._segment is None or number == 0 or number in self._used or not (size or wants_weights):
            return None
        # An entry also when no slot is free: if the request is sent again, the reply to this first copy would free
        # slots that the server may still write to for the second.
        used = self._used[number] = []
        if not self._has_slots():
            return None
        place: Place | None = None
        reply: Place | None = None
        if (at := self._slot_of(vector)) is not None:
            place = (at, size)
        elif 0 < size <= self._slot_bytes and self._free:
            place = (self._free.popleft(), size)
            used.append(place[0])
            _copy(vector, self._segment.part(*place))
        if wants_weights and self._free:
            reply = (self._free.popleft(), self._slot_bytes)
            used.append(reply[0])
        if place is None and reply is None:
            return None
        return Places(self._segment.name, place, reply)

    def _has_slots(self) -> bool:
        """Whether there are slots. They are reserved when the size of the first vector is known."""
        if self._slot_bytes or not self._is_proven or self._largest < LEAST_BYTES:
            return self._slot_bytes > 0
        assert self._segment is not None, "it is proven"
        size = -(-self._largest // PAGE_BYTES) * PAGE_BYTES
        try:
            self._segment.reserve(COUNT * size)
            self._segment.part(PAGE_BYTES, COUNT * size)
        except (OSError, WireError) as error:
            log.debug("no memory can be shared: %s", error)
            self.release()
            return False
        self._slot_bytes = size
        self._free.extend(PAGE_BYTES + number * size for number in range(COUNT))
        log.info("vectors go through shared memory")
        return True

    def _reserve_more(self) -> None:
        """
        Reserve a quarter more slots for arrays. Raises OSError.

        Fewer at a time would take many descriptors: each call maps the whole file again, and a mapping with its
        descriptor lives as long as any array in it.
        """
        assert self._segment is not None, "it has slots"
        more = max(1, self._count // 4)
        self._segment.reserve((self._count + more) * self._slot_bytes)
        self._array_free.extend(PAGE_BYTES + at * self._slot_bytes for at in range(self._count, self._count + more))
        self._count += more

    def _slot_of(self, vector: Sequence[Buffer]) -> int | None:
        """The offset of the slot that this vector was made in; None: in no slot."""
        if len(vector) != 1 or not self._array_slots:
            return None
        return self._array_slots.get(np.frombuffer(vector[0], dtype=np.uint8).ctypes.data)

    def _reply_in_slot(self, place: Place, used: list[int]) -> memoryview:
        """The bytes of a reply; the slot is free again when nothing references them. Raises WireError."""
        at, size = place
        if at not in used or size > self._slot_bytes:
            raise WireError(f"a reply at byte {at} of shared memory, which is not its slot")
        assert self._segment is not None, "its name was compared"
        used.remove(at)
        array = self._segment.part(at, size)
        weakref.finalize(array, self._free.append, at).atexit = False
        return array.data


def _free_array(address: int, array_slots: dict[int, int], free: list[int]) -> None:
    free.append(array_slots.pop(address))


def _copy(vector: Sequence[Buffer], into: Bytes) -> None:
    at = 0
    for buffer in vector:
        part = np.frombuffer(buffer, dtype=np.uint8)
        into[at : at + len(part)] = part
        at += len(part)
