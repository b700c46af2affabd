"""Which messages use a slot of the segment, and which must not."""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import pytest

from ps_client.shell import segment_slots as slots
from ps_client.shell.segment_slots import SegmentSlots
from ps_common.protocol import messages
from ps_common.protocol.wire import Buffer, Places, take_places, to_frames
from ps_common.sockets.shared_memory import Segment
from tests.descriptors import none_left

VECTOR = [memoryview(bytes(12))]


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> Iterator[SegmentSlots]:
    """Slots of a segment that the server has proved to map."""
    monkeypatch.setattr(slots, "LEAST_BYTES", 1)
    proven = SegmentSlots()
    frames = proven.to_frames(messages.Hello(request=1, worker_id="w", secret="0123456789abcdef", protocols=(1, 1)), ())
    segment = Segment.open(msgpack.unpackb(frames[1])["memory"])
    welcome = messages.Welcome(
        request=1, protocol=1, epoch=1, number=0, run={}, schema=(), version=1, run_id="r", incarnation=1,
        epoch_proof="", global_steps=0, settled_through=0, reported_through=0, lease_seconds=5.0,
        codecs=("float32",), memory=segment.proof,
    )  # fmt: skip
    proven.read(to_frames(welcome))
    yield proven
    segment.close()
    proven.release()


def push_pull(number: int) -> messages.Push:
    have: dict[str, Any] = {"computed_on": 1, "epoch": 1, "have_version": 1, "have_epoch": 1}
    return messages.Push(request=number, sequence=number, schema_hash="s", weight_codec="float32", **have)


def places_of(frames: Sequence[Buffer]) -> Places | None:
    return take_places(frames)[1]


def sent_once(proven: SegmentSlots) -> None:
    """The size of slots is known when the first vector has been sent."""
    proven.to_frames(push_pull(10), VECTOR)


def test_a_vector_that_was_made_in_a_slot_is_sent_from_there(
    proven: SegmentSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proven.array(3) is None
    sent_once(proven)
    made = proven.array(3)
    assert made is not None
    made[:] = [1, 2, 3]
    monkeypatch.setattr(slots, "_copy", lambda *_: pytest.fail("it was copied"))
    places = places_of(proven.to_frames(push_pull(20), [made.data.cast("B")]))
    assert places is not None
    assert places.vector is not None
    seen = Segment.part(proven._segment, *places.vector)  # type: ignore[arg-type]
    assert seen.view(np.float32).tolist() == [1, 2, 3]


def test_a_slot_is_used_again_only_when_no_view_of_its_array_is_left(proven: SegmentSlots) -> None:
    sent_once(proven)

    def slot_of(array: np.ndarray | None) -> int:
        assert array is not None
        places = places_of(proven.to_frames(push_pull(next(numbers)), [array.data.cast("B")]))
        assert places is not None
        assert places.vector is not None
        return places.vector[0]

    numbers = itertools.count(20)
    first, second = proven.array(3), proven.array(3)
    assert first is not None
    where, view = slot_of(first), memoryview(first).cast("B")[4:]
    others = [second, proven.array(3)]
    del first
    others.append(proven.array(3))
    assert where not in map(slot_of, others)
    del view
    assert slot_of(proven.array(3)) == where


def test_no_more_slots_are_touched_than_are_in_use_at_once(proven: SegmentSlots) -> None:
    sent_once(proven)
    touched: set[int] = set()
    for count in (5, 1, 40, 7, 40):
        arrays = [proven.array(3) for _ in range(count)]
        touched.update(proven._array_slots.values())
        del arrays
    assert len(touched) == 40


def test_thousands_of_arrays_take_few_descriptors(proven: SegmentSlots) -> None:
    sent_once(proven)
    before = len(os.listdir("/proc/self/fd"))
    arrays = [proven.array(3) for _ in range(1000)]
    assert all(array is not None for array in arrays)
    assert len({array.ctypes.data for array in arrays if array is not None}) == 1000
    assert len(os.listdir("/proc/self/fd")) - before < 50


def test_a_slot_that_could_not_be_mapped_is_not_lost(proven: SegmentSlots) -> None:
    sent_once(proven)
    with none_left():
        assert [proven.array(3) for _ in range(100)] == [None] * 100
    reserved = os.fstat(proven._segment._descriptor).st_size  # type: ignore[union-attr]
    assert proven.array(3) is not None
    assert os.fstat(proven._segment._descriptor).st_size == reserved  # type: ignore[union-attr]
