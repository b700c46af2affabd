"""Mapped segments: what a process of the same user makes of its own segment costs that process alone."""

import fcntl
import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from ps_common.protocol import messages
from ps_common.protocol.wire import Places
from ps_common.sockets.shared_memory import LABEL, PAGE_BYTES, SECRET_BYTES, Segment
from ps_server.shell.mapped_segments import MOST_SLOTS, MappedSegments

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

LOUD, QUIET = b"loud", b"quiet"
SIZE = 64  # bytes of each vector


@pytest.fixture
def segments() -> Iterator[MappedSegments]:
    mapped = MappedSegments()
    yield mapped
    mapped.keep_only(())


def hello(memory: str) -> messages.Hello:
    return messages.Hello(request=1, worker_id="a", secret="0" * 32, protocols=(1, 1), memory=memory)


def pushed(segments: MappedSegments, peer: bytes, name: str) -> list[float] | None:
    """The vector of a push whose gradient lies in the first slot; None when its segment is not mapped."""
    push = messages.Push(request=7, sequence=1, computed_on=1, epoch=1, schema_hash="any")
    places = Places(name, vector=(PAGE_BYTES, SIZE))
    vector = segments.take(peer, push, [], places, most_bytes=SIZE, now=0.0)
    return None if vector is None else np.frombuffer(vector[0], dtype=np.float32).tolist()


def test_a_segment_that_cannot_be_mapped_costs_its_own_worker_alone(segments: MappedSegments) -> None:
    secret = "0" * SECRET_BYTES
    sealed = os.memfd_create(LABEL, os.MFD_ALLOW_SEALING)
    os.write(sealed, secret.encode() * 2 + bytes(PAGE_BYTES))
    fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    name = f"ps-rl-{os.getpid()}-{sealed}-{secret}"
    segments.offer(LOUD, hello(name))
    assert segments.proof(LOUD, now=0.0) == secret
    assert pushed(segments, LOUD, name) is None
    segments.offer(LOUD, hello(name))
    assert segments.proof(LOUD, now=0.0) == "", "it goes by wire from now on"

    good = Segment.make()
    good.reserve(PAGE_BYTES)
    segments.offer(QUIET, hello(good.name))
    assert segments.proof(QUIET, now=0.0) == good.proof
    assert pushed(segments, QUIET, good.name) == [0.0] * (SIZE // 4)
    good.close()
    os.close(sealed)


def test_slots_for_replies_that_never_come_are_forgotten(segments: MappedSegments) -> None:
    segment = Segment.make()
    segment.reserve(PAGE_BYTES)
    segments.offer(LOUD, hello(segment.name))
    segments.proof(LOUD, now=0.0)
    places = Places(segment.name, answer=(PAGE_BYTES, SIZE))
    for number in range(10 * MOST_SLOTS):
        frame = messages.Frame(request=number, score=0.0, value=0.0)
        segments.take(LOUD, frame, [], places, most_bytes=SIZE, now=0.0)
    assert len(segments._mapped[LOUD].reply_slots) == MOST_SLOTS
    segment.close()
