"""What lends a slot of shared memory, and what must not."""

from collections.abc import Iterator, Sequence

import msgpack
import pytest

from common import messages
from common.shared_memory import Segment
from common.wire import Buffer, Places, take_places, to_frames
from rl_worker import slots
from rl_worker.slots import COUNT, Slots

VECTOR = [memoryview(bytes(12))]


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slots]:
    """Slots that the server has proved to see."""
    monkeypatch.setattr(slots, "WORTH_BYTES", 1)
    proven = Slots()
    frames = proven.to_frames(messages.Hello(request=1, worker_id="w", incarnation=1, protocols=(1, 1)), ())
    segment = Segment.open(msgpack.unpackb(frames[1])["memory"])
    welcome = messages.Welcome(
        request=1, protocol=1, epoch=1, number=0, run={}, schema=(), version=1, seeded_in=1, global_steps=0,
        settled_through=0, reported_through=0, lease_seconds=5.0, codecs=("float32",), memory=segment.proof,
    )  # fmt: skip
    proven.read(to_frames(welcome))
    yield proven
    segment.close()
    proven.let_go()


def push_pull(number: int) -> messages.PushPull:
    have = {"computed_on": 1, "have_version": 1, "epoch": 1, "have_epoch": 1}
    return messages.PushPull(request=number, sequence=number, schema_hash="s", **have)


def places_of(frames: Sequence[Buffer]) -> Places | None:
    return take_places(frames)[1]


def test_a_request_that_went_without_a_slot_lends_none_when_it_is_repeated(proven: Slots) -> None:
    """Its first answer may be on its way: it would free what the server may write to for the second."""
    for number in (10, 20):
        assert places_of(proven.to_frames(push_pull(number), VECTOR)) is not None
    assert COUNT == 3, "two slots of the first, one of the second: none is free"
    assert places_of(proven.to_frames(push_pull(30), VECTOR)) is None
    answer = messages.NotModified(request=10, epoch=1, version=1, global_steps=0)
    assert proven.read(to_frames(answer)) is not None
    assert places_of(proven.to_frames(push_pull(30), VECTOR)) is None
    assert places_of(proven.to_frames(push_pull(40), VECTOR)) is not None
