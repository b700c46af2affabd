"""Any bytes are a message or a WireError, in both directions."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_common.errors import WireError
from ps_common.protocol.messages import CARRIES_VECTOR, Message, Refused, ToServer, ToWorker
from ps_common.protocol.wire import PROTOCOL_TAG, Buffer, read_to_server, read_to_worker, to_frames
from tests.ps_common.generated import header_of, values_of

FEW = settings(max_examples=max(1, settings().max_examples // 6))  # of each type
Read = Callable[[Sequence[Buffer]], tuple[Message, Sequence[Buffer]]]

TO_SERVER, TO_WORKER = get_args(ToServer), get_args(ToWorker)
KINDS: dict[Read, tuple[type[Message], ...]] = {read_to_server: TO_SERVER, read_to_worker: TO_WORKER}

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
EXTENSIONS = st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=5))
TIMES = st.builds(msgpack.Timestamp, st.integers(0, 2**34 - 1), st.integers(0, 10**9 - 1))
KEYS = st.text(max_size=5) | st.binary(max_size=5)
ANYTHING = st.recursive(
    PLAIN | st.binary(max_size=5) | EXTENSIONS | TIMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
FRAMES = st.sampled_from([PROTOCOL_TAG, b"", msgpack.packb({"type": "PULL", "request": 1})]) | st.binary(max_size=40)


def read_by(kind: type[Message]) -> Read:
    return read_to_server if kind in TO_SERVER else read_to_worker


def messages_to(read: Read) -> st.SearchStrategy[Message]:
    return st.sampled_from(KINDS[read]).flatmap(values_of)


def assert_read_or_refused(read: Read, frames: Sequence[Buffer]) -> None:
    """Any error but WireError fails the test. A message that is read can be printed, others can be answered."""
    try:
        message, _ = read(frames)
    except WireError as error:
        answer = Refused(request=0, code="bad_message", reason=str(error))
        assert read_to_worker(to_frames(answer))[0] == answer
    else:
        assert type(message) in KINDS[read]
        assert repr(message)


@pytest.mark.parametrize("kind", TO_SERVER + TO_WORKER)
@FEW
@given(data=st.data())
def test_a_message_of_any_type_arrives_as_it_was_sent(kind: type[Message], data: Any) -> None:
    message = data.draw(values_of(kind))
    inline = getattr(message, "inline", b"")
    vector = [b"1234", b"", b"5"] if kind in CARRIES_VECTOR and not inline and data.draw(st.booleans()) else []
    frames = [memoryview(bytes(frame)) for frame in to_frames(message, vector)]
    received, buffers = read_by(kind)(frames)
    assert received == message
    assert b"".join(buffers) == (inline or b"".join(vector))


@pytest.mark.parametrize("kind", TO_SERVER + TO_WORKER)
@FEW
@given(data=st.data())
def test_a_message_for_the_other_side_is_refused(kind: type[Message], data: Any) -> None:
    other = read_to_worker if kind in TO_SERVER else read_to_server
    with pytest.raises(WireError, match="Invalid value"):
        other(to_frames(data.draw(values_of(kind))))


@pytest.mark.parametrize("read", KINDS)
@given(frames=st.lists(FRAMES, max_size=5))
def test_any_frames_are_read_or_refused(read: Read, frames: list[bytes]) -> None:
    assert_read_or_refused(read, frames)


@pytest.mark.parametrize("read", KINDS)
@given(header=st.binary(max_size=60) | ANYTHING.map(msgpack.packb))
def test_any_header_is_read_or_refused(read: Read, header: bytes) -> None:
    assert_read_or_refused(read, [PROTOCOL_TAG, header])


@pytest.mark.parametrize("read", KINDS)
@given(data=st.data(), replacement=ANYTHING)
def test_a_message_with_one_field_replaced_is_read_or_refused(read: Read, data: Any, replacement: Any) -> None:
    header = header_of(data.draw(messages_to(read)))
    header[data.draw(st.sampled_from(sorted(header)))] = replacement
    assert_read_or_refused(read, [PROTOCOL_TAG, msgpack.packb(header)])


@pytest.mark.parametrize("read", KINDS)
@given(data=st.data(), replacement=st.binary(max_size=3))
def test_a_message_with_a_few_bytes_replaced_is_read_or_refused(read: Read, data: Any, replacement: bytes) -> None:
    header = msgpack.packb(header_of(data.draw(messages_to(read))))
    start = data.draw(st.integers(0, len(header)))
    end = data.draw(st.integers(start, min(start + 3, len(header))))
    assert_read_or_refused(read, [PROTOCOL_TAG, header[:start] + replacement + header[end:]])
