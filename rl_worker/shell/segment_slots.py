"""
The slots of shared memory that a worker has with its server, and what each is used for.

The worker decides alone. It copies a vector into a free slot and names it to the server; with every request for
weights it lends a free slot, into which the server may write its one answer. Such slots are in use until that request
has been answered; one that holds an answer, until nobody reads it any more.

So weights are of one version, whole, whatever is lost or repeated: the server writes to a slot only between a request
and its answer, and a request that is repeated meanwhile lends none (the server forgets the slot of the first one then,
see ps_server/shell/mapped_segments.py). An answer in memory of a former connection is not looked at.

A vector may also be made in a slot, and goes without a copy. Such slots are apart from the others, as many as are held
at a time: pushes are kept until they are durable. They are used again when nobody holds the vector, which whoever sends
it does until it has been answered.

What does not go by memory goes by the wire: no segment, no free slot, a vector that is too large.
"""

import logging
import weakref
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from common.errors import WireError
from common.protocol.messages import Hello, Pull, Push, Refused, ToServer, ToWorker, Welcome
from common.protocol.tensors import ELEMENT_BYTES, vector_bytes
from common.protocol.wire import Buffer, Place, Places, read_to_worker, take_places, to_frames, with_places
from common.sockets.shared_memory import PAGE_BYTES, Bytes, Segment

COUNT = 3  # the newest weights, those that are asked for, and the gradient under way
WORTH_BYTES = 2**16  # smaller vectors are as fast by the wire

log = logging.getLogger("rl-worker")


class SegmentSlots:
    """Turns messages into frames and back. All but the arrays it gives away belongs to one thread."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._offered_in = 0  # the number of the first HELLO that has named it
        self._is_answered = False  # a WELCOME has come after it
        self._is_proven = False  # the server sees it
        self._slot_bytes = 0  # 0: none are reserved yet
        self._free: deque[int] = deque()  # where free slots begin
        self._used: dict[int, list[int]] = {}  # slots that the server may read or write, by the number of the request
        self._largest = 0  # bytes of a vector
        self._made_here: dict[int, int] = {}  # slots that vectors are made in, by their address
        self._to_make: deque[int] = deque()  # such slots that nobody holds
        self._count = COUNT  # of all slots

    def to_frames(self, message: ToServer, vector: Sequence[Buffer]) -> list[Buffer]:
        """What to send: by memory what can go so."""
        if isinstance(message, Hello):
            return to_frames(self._with_offer(message))
        self._largest = max(self._largest, vector_bytes(vector))
        places = self._places(message, vector)
        if places is None:
            return to_frames(message, vector)
        return with_places(to_frames(message, vector if places.vector is None else ()), places)

    def memory(self, size: int) -> np.ndarray | None:
        """An array [size] of float32 in a slot, from which it can be sent without a copy; None where there is none."""
        if self._segment is None or ELEMENT_BYTES * size > self._slot_bytes:
            return None
        try:
            if not self._to_make:
                self._make_more()
            # Of a view an array would hold only what that is a view of, not the view.
            array = np.frombuffer(self._segment.part(self._to_make[0], ELEMENT_BYTES * size).data, dtype=np.float32)
        except (OSError, WireError) as error:
            log.debug("no more memory can be shared: %s", error)
            return None
        at = self._to_make.popleft()
        address = array.ctypes.data
        self._made_here[address] = at
        weakref.finalize(array, _is_free_again, address, self._made_here, self._to_make).atexit = False
        return array

    def read(self, frames: Sequence[Buffer]) -> tuple[ToWorker, Sequence[Buffer]] | None:
        """A message and its vector; None when that lies in memory that is no longer ours. Raises WireError."""
        frames, places = take_places(frames)
        message, vector = read_to_worker(frames)
        if isinstance(message, Welcome):
            self._welcomed(message)
        if isinstance(message, Refused) and message.code == "quarantined":
            return message, vector  # what was sent before may still wait for its turn there
        ended = self._used.pop(message.request, [])
        if places is not None and (self._segment is None or places.segment != self._segment.name):
            return None
        if places is not None and places.vector is not None:
            vector = [self._answer(places.vector, ended)]
        self._free.extend(ended)
        return message, vector

    def let_go(self) -> None:
        """The connection is no more. Arrays that were given away stay."""
        if self._segment is not None:
            self._segment.close()
        self._segment, self._is_answered, self._is_proven, self._slot_bytes = None, False, False, 0
        self._free, self._used = deque(), {}
        self._made_here, self._to_make, self._count = {}, deque(), COUNT

    def _with_offer(self, hello: Hello) -> Hello:
        """Each WELCOME ends what was offered before: another server may answer the next HELLO."""
        if self._segment is None or self._is_answered:
            self.let_go()
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
        """Where the server finds this vector, and may write the answer; None: by the wire."""
        number = message.request
        size = vector_bytes(vector)
        asks = isinstance(message, Pull) or (isinstance(message, Push) and message.weight_codec is not None)
        # 0 is no number of its own.
        if self._segment is None or number == 0 or number in self._used or not (size or asks):
            return None
        # Also when there is nothing free, or nothing yet: if it is repeated, the answer to this one may come first, and
        # free what the server may then still write to.
        used = self._used[number] = []
        if not self._has_slots():
            return None
        place: Place | None = None
        answer: Place | None = None
        if (made_at := self._made_at(vector)) is not None:
            place = (made_at, size)
        elif 0 < size <= self._slot_bytes and self._free:
            place = (self._free.popleft(), size)
            used.append(place[0])
            _copy(vector, self._segment.part(*place))
        if asks and self._free:
            answer = (self._free.popleft(), self._slot_bytes)
            used.append(answer[0])
        if place is None and answer is None:
            return None
        return Places(self._segment.name, place, answer)

    def _has_slots(self) -> bool:
        """Reserve them when the first vector has told how large they must be."""
        if self._slot_bytes or not self._is_proven or self._largest < WORTH_BYTES:
            return self._slot_bytes > 0
        assert self._segment is not None, "it is proven"
        size = -(-self._largest // PAGE_BYTES) * PAGE_BYTES
        try:
            self._segment.reserve(COUNT * size)
            self._segment.part(PAGE_BYTES, COUNT * size)
        except (OSError, WireError) as error:
            log.debug("no memory can be shared: %s", error)
            self.let_go()
            return False
        self._slot_bytes = size
        self._free.extend(PAGE_BYTES + number * size for number in range(COUNT))
        log.info("vectors go through shared memory")
        return True

    def _make_more(self) -> None:
        """
        More slots to make vectors in. Raises OSError.

        A quarter more at a time: each time the whole file is mapped anew, and a mapping with its descriptor lives as
        long as any vector that was made in it.
        """
        assert self._segment is not None, "it has slots"
        more = max(1, self._count // 4)
        self._segment.reserve((self._count + more) * self._slot_bytes)
        self._to_make.extend(PAGE_BYTES + at * self._slot_bytes for at in range(self._count, self._count + more))
        self._count += more

    def _made_at(self, vector: Sequence[Buffer]) -> int | None:
        """The slot that it was made in, if it was."""
        if len(vector) != 1 or not self._made_here:
            return None
        return self._made_here.get(np.frombuffer(vector[0], dtype=np.uint8).ctypes.data)

    def _answer(self, place: Place, used: list[int]) -> memoryview:
        """The bytes of an answer, whose slot is free again when nobody reads them any more. Raises WireError."""
        at, size = place
        if at not in used or size > self._slot_bytes:
            raise WireError(f"an answer at byte {at} of shared memory, where none was asked for")
        assert self._segment is not None, "it has been compared"
        used.remove(at)
        array = self._segment.part(at, size)
        weakref.finalize(array, self._free.append, at).atexit = False
        return array.data


def _is_free_again(address: int, made_here: dict[int, int], to_make: deque[int]) -> None:
    to_make.append(made_here.pop(address))


def _copy(vector: Sequence[Buffer], into: Bytes) -> None:
    at = 0
    for buffer in vector:
        part = np.frombuffer(buffer, dtype=np.uint8)
        into[at : at + len(part)] = part
        at += len(part)
