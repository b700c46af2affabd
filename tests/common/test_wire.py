from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import wire
from common.codecs import Buffer
from common.errors import WireError
from common.messages import (
    CARRIES_VECTOR,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Pull,
    Push,
    Refused,
    ToServer,
    ToWorker,
    Weights,
    Welcome,
)
from common.wire import MAX_FRAMES, PROTOCOL_TAG, chunks, read_to_server, read_to_worker, to_frames
from tests.common.generated import header_of, values_of

Read = Callable[[Sequence[Buffer]], tuple[Message, Sequence[Buffer]]]

DIRECTIONS: dict[Read, tuple[type, ...]] = {read_to_server: get_args(ToServer), read_to_worker: get_args(ToWorker)}
ALL = [
    (kind, read, other)
    for read, other in zip(DIRECTIONS, reversed(DIRECTIONS), strict=True)
    for kind in DIRECTIONS[read]
]
PULL = {"type": "PULL", "request": 1}
PUSH = {"type": "PUSH", "request": 1, "sequence": 1, "computed_on": 0, "epoch": 0, "schema_hash": "0f"}
HELLO = {"type": "HELLO", "request": 1, "worker_id": "a", "incarnation": 1, "protocols": [1, 1]}

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5) | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=5))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**34 - 1), st.integers(0, 10**9 - 1))
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.binary(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def kept(examples: int) -> settings:
    return settings(max_examples=examples, derandomize=True, deadline=None)


def framed(header: Any, *vector: bytes) -> list[bytes]:
    return [PROTOCOL_TAG, msgpack.packb(header), *vector]


def assert_read_or_refused(read: Read, frames: Sequence[Buffer]) -> None:
    """Any error but WireError fails the test. What is read can be printed; what is not, can be answered."""
    try:
        message, _ = read(frames)
    except WireError as error:
        answer = Refused(request=0, code="bad_message", reason=str(error))
        assert read_to_worker(to_frames(answer))[0] == answer
    else:
        assert type(message) in DIRECTIONS[read]
        assert repr(message)


@pytest.mark.parametrize(("kind", "read", "_other"), ALL)
@given(data=st.data())
@kept(12)
def test_a_message_of_any_type_arrives_as_it_was_sent(kind: type[Message], read: Read, _other: Read, data: Any) -> None:
    message = data.draw(values_of(kind))
    inline = getattr(message, "inline", b"")
    vector = [b"1234", b"", b"5"] if kind in CARRIES_VECTOR and not inline and data.draw(st.booleans()) else []
    frames = [bytearray(frame) for frame in to_frames(message, vector)]
    received, buffers = read([memoryview(frame) for frame in frames])
    assert received == message
    assert b"".join(buffers) == (inline or b"".join(vector))


@pytest.mark.parametrize(("kind", "_read", "other"), ALL)
@given(data=st.data())
@kept(2)
def test_a_message_for_the_other_side_is_refused(kind: type[Message], _read: Read, other: Read, data: Any) -> None:
    with pytest.raises(WireError):
        other(to_frames(data.draw(values_of(kind))))


@pytest.mark.parametrize("read", DIRECTIONS)
class TestWhateverTheBytes:
    @kept(100)
    @given(
        frames=st.lists(st.sampled_from([PROTOCOL_TAG, b"", msgpack.packb(PULL)]) | st.binary(max_size=40), max_size=5)
    )
    def test_any_frames_are_read_or_refused(self, read: Read, frames: list[bytes]) -> None:
        assert_read_or_refused(read, frames)

    @kept(150)
    @given(header=st.binary(max_size=60))
    def test_any_header_bytes_are_read_or_refused(self, read: Read, header: bytes) -> None:
        assert_read_or_refused(read, [PROTOCOL_TAG, header])

    @kept(150)
    @given(header=ANYTHING)
    def test_any_msgpack_header_is_read_or_refused(self, read: Read, header: Any) -> None:
        assert_read_or_refused(read, framed(header))

    @kept(200)
    @given(data=st.data())
    def test_a_message_with_one_field_replaced_is_read_or_refused(self, read: Read, data: Any) -> None:
        header = header_of(data.draw(values_of(data.draw(st.sampled_from(DIRECTIONS[read])))))
        header[data.draw(st.sampled_from(sorted(header)))] = data.draw(ANYTHING)
        assert_read_or_refused(read, framed(header))

    @kept(200)
    @given(data=st.data(), replacement=st.binary(max_size=3))
    def test_a_message_with_a_few_bytes_replaced_is_read_or_refused(
        self, read: Read, data: Any, replacement: bytes
    ) -> None:
        header = msgpack.packb(header_of(data.draw(values_of(data.draw(st.sampled_from(DIRECTIONS[read]))))))
        start = data.draw(st.integers(0, len(header)))
        end = data.draw(st.integers(start, min(start + 3, len(header))))
        assert_read_or_refused(read, [PROTOCOL_TAG, header[:start] + replacement + header[end:]])

    @pytest.mark.parametrize("depth", [3, 100, 900, 1023, 5000, 20_000])
    @pytest.mark.parametrize("nest", [b"\x91", b"\x81\xa1a"], ids=["lists", "maps"])
    @pytest.mark.parametrize("key", ["wishes", "proposal", "run"])
    def test_deep_nesting_is_refused(self, read: Read, nest: bytes, depth: int, key: str) -> None:
        header = {**HELLO, key: {"a": 0}}
        frames = [PROTOCOL_TAG, msgpack.packb(header)[:-1] + nest * depth + b"\x00"]
        assert_read_or_refused(read, frames)
        with pytest.raises(WireError):
            read(frames)


@pytest.mark.parametrize("tag", [b"", b"ps-rl", b"ps-rl/2", b"ps-rl/1 ", b"PS-RL/1", b"\0" * 100])
def test_another_tag_is_refused(tag: bytes) -> None:
    with pytest.raises(WireError, match="first frame"):
        read_to_server([tag, msgpack.packb(PULL)])


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"request": 1}, id="no type"),
        pytest.param({**PULL, "type": "PULLL"}, id="unknown type"),
        pytest.param({**PULL, "type": 3}, id="type is a number"),
        pytest.param({"type": "PULL"}, id="a field is missing"),
        pytest.param({**PULL, "colour": 1}, id="unknown field"),
        pytest.param({b"type": "PULL", b"request": 1}, id="keys are bytes"),
        pytest.param({**HELLO, "wishes": {1: 2}}, id="inner key is a number"),
        pytest.param({**PULL, "target": 1}, id="a number for a bool"),
        pytest.param({**PULL, "codec": b"float32"}, id="bytes for text"),
        pytest.param({**PUSH, "inline": "AAAA"}, id="text for bytes"),
        pytest.param({**PUSH, "inline": [1, 2]}, id="a list for bytes"),
        pytest.param({**HELLO, "protocols": [1]}, id="half a pair"),
        pytest.param({**HELLO, "codecs": "float32"}, id="text for a list"),
        pytest.param({**HELLO, "wishes": {"a": b"x"}}, id="a wish is bytes"),
        pytest.param({**HELLO, "wishes": {"a": msgpack.ExtType(5, b"x")}}, id="a wish is an extension"),
        pytest.param([PULL], id="a list"),
        pytest.param(None, id="nil"),
    ],
)
def test_a_header_that_is_no_message_is_refused(header: Any) -> None:
    with pytest.raises(WireError, match="bad header"):
        read_to_server(framed(header))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"\x83" + msgpack.packb(PULL)[1:] + b"\xa7request\x02", id="a key twice"),
        pytest.param(msgpack.packb({**HELLO, "wishes": 0})[:-1] + b"\x82\xa1a\x01\xa1a\x01", id="an inner key twice"),
        pytest.param(msgpack.packb({**PULL, "codec": "abc"}).replace(b"abc", b"a\xffc"), id="a value is no UTF-8"),
        pytest.param(msgpack.packb(PULL).replace(b"type", b"t\xc3pe"), id="a key is no UTF-8"),
        pytest.param(msgpack.packb(PULL).replace(b"PULL", b"\xed\xa0\x80L"), id="a surrogate"),
        pytest.param(msgpack.packb(PULL) + b"\xc0", id="more after the map"),
        pytest.param(msgpack.packb(PULL)[:-1], id="cut short"),
        pytest.param(b"\xc1", id="a byte that msgpack never uses"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="claims four billion fields"),
        pytest.param(b"", id="empty"),
    ],
)
def test_header_bytes_that_are_no_proper_map_are_refused(header: bytes) -> None:
    with pytest.raises(WireError, match="bad header"):
        read_to_server([PROTOCOL_TAG, header])


@pytest.mark.parametrize(
    ("read", "header", "limit"),
    [
        (read_to_server, HELLO | {"wishes": {"a": ""}}, 65_536),
        (read_to_worker, {"type": "STOP", "reason": ""}, 1_048_576),
    ],
)
def test_a_header_may_have_just_its_limit(read: Read, header: dict[str, Any], limit: int) -> None:
    # The header ends with an empty text, one byte long: it is replaced by one that takes five bytes and its content.
    start = msgpack.packb(header)[:-1]
    for size in (limit, limit + 1):
        content = size - len(start) - 5
        frames = [PROTOCOL_TAG, start + b"\xdb" + content.to_bytes(4, "big") + b"x" * content]
        assert len(frames[1]) == size
        if size == limit:
            read(frames)
        else:
            with pytest.raises(WireError, match=f"{size} bytes; {limit} are allowed"):
                read(frames)


def test_a_message_has_two_to_514_frames() -> None:
    _, vector = read_to_server(framed(PUSH, *[b"1234"] * (MAX_FRAMES - 2)))
    assert (MAX_FRAMES, len(vector)) == (514, 512)
    for frames in ([], [PROTOCOL_TAG], framed(PUSH, *[b""] * (MAX_FRAMES - 1))):
        with pytest.raises(WireError, match="2 to 514 frames"):
            read_to_server(frames)


@pytest.mark.parametrize("message", [Heartbeat(request=1), Pull(request=1), Goodbye(request=1)])
@pytest.mark.parametrize("vector", [b"1234", b""])
def test_frames_after_a_message_that_carries_no_vector_are_refused(message: Message, vector: bytes) -> None:
    with pytest.raises(WireError, match="carries no vector"):
        read_to_server([*to_frames(message), vector])


def test_a_vector_stands_in_frames_or_in_the_header_not_in_both() -> None:
    push = Push(request=1, sequence=1, computed_on=0, epoch=0, schema_hash="0f", inline=b"1234")
    assert read_to_server(to_frames(push)) == (push, [b"1234"])
    weights = Weights(request=1, epoch=1, version=1, global_steps=0, inline=b"1234")
    assert read_to_worker(to_frames(weights)) == (weights, [b"1234"])
    for message, read in ((push, read_to_server), (weights, read_to_worker)):
        with pytest.raises(WireError, match="not in both"):
            read(to_frames(message, [b"1234"]))


@pytest.mark.parametrize("size", [0, 1, 4 * 2**20, 4 * 2**20 + 1, 9 * 2**20])
def test_a_vector_is_cut_into_frames_of_up_to_4_mib_and_not_copied(size: int) -> None:
    vector = bytearray(size)
    cut = chunks(vector)
    assert [len(chunk) for chunk in cut] == [min(4 * 2**20, size - at) for at in range(0, size, 4 * 2**20)]
    assert wire.CHUNK_BYTES <= wire.MAX_FRAME_BYTES
    if cut:
        vector[-1] = 7
        assert cut[-1][-1] == 7


def test_a_run_of_any_settings_fits_a_hello() -> None:
    run = {"seed": None, "algorithm": {"name": "a3c", "discount": 0.9}, "network": {"hidden": (64, 64)}}
    hello = Hello(
        request=1, worker_id="a", incarnation=1, protocols=(1, 1), wishes={"budget.until_return": None}, proposal=run
    )
    assert read_to_server(to_frames(hello))[0] == hello
    assert Welcome in DIRECTIONS[read_to_worker]
