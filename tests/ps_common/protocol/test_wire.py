from itertools import product
from typing import Any

import msgpack
import pytest

from ps_common.errors import WireError
from ps_common.protocol import wire
from ps_common.protocol.messages import Push, Weights
from ps_common.protocol.wire import PROTOCOL_TAG, chunks, read_to_server, read_to_worker, to_frames
from ps_common.release import release
from tests.rows import row

PULL = {"type": "PULL", "request": 1}
PUSH = {"type": "PUSH", "request": 1, "sequence": 1, "computed_on": 0, "epoch": 0, "schema_hash": "0f"}
HELLO = {"type": "HELLO", "request": 1, "worker_id": "a", "secret": "0123456789abcdef", "protocols": [1, 1]}
WELCOME = {
    "type": "WELCOME", "request": 1, "protocol": 1, "epoch": 1, "number": 0, "schema": [], "version": 0, "codecs": [],
    "global_steps": 0, "run_id": "a", "incarnation": 1, "epoch_proof": "a", "settled_through": 0, "reported_through": 0,
    "lease_seconds": 5.0, "run": {},
}  # fmt: skip


def framed(header: Any, *vector: bytes) -> list[bytes]:
    return [PROTOCOL_TAG, msgpack.packb(header), *vector]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"request": 1}, id="no type"),
        pytest.param({**PULL, "type": "PULLL"}, id="unknown type"),
        pytest.param({**PULL, "type": 3}, id="type is a number"),
        pytest.param({"type": "PULL"}, id="a field is missing"),
        pytest.param({**PULL, "colour": 1}, id="unknown field"),
        pytest.param({b"type": "PULL", b"request": 1}, id="keys are bytes"),
        pytest.param({**HELLO, "overrides": {1: 2}}, id="inner key is a number"),
        pytest.param({**PULL, "target": 1}, id="a number for a bool"),
        pytest.param({**PULL, "codec": b"float32"}, id="bytes for text"),
        pytest.param({**PUSH, "inline": "AAAA"}, id="text for bytes"),
        pytest.param({**PUSH, "inline": [1, 2]}, id="a list for bytes"),
        pytest.param({**HELLO, "protocols": [1]}, id="half a pair"),
        pytest.param({**HELLO, "codecs": "float32"}, id="text for a list"),
        pytest.param({**HELLO, "overrides": {"a": b"x"}}, id="a wish is bytes"),
        pytest.param({**HELLO, "overrides": {"a": msgpack.ExtType(5, b"x")}}, id="a wish is an extension"),
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
        pytest.param(
            msgpack.packb({**HELLO, "overrides": 0})[:-1] + b"\x82\xa1a\x01\xa1a\x01", id="an inner key twice"
        ),
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


def test_a_vector_stands_in_frames_or_in_the_header_not_in_both() -> None:
    push = Push(request=1, sequence=1, computed_on=0, epoch=0, schema_hash="0f", inline=b"1234")
    assert read_to_server(to_frames(push)) == (push, [b"1234"])
    weights = Weights(request=1, epoch=1, version=1, global_steps=0, inline=b"1234")
    assert read_to_worker(to_frames(weights)) == (weights, [b"1234"])
    for message, read in ((push, read_to_server), (weights, read_to_worker)):
        with pytest.raises(WireError, match="not in both"):
            read(to_frames(message, [b"1234"]))


def test_a_vector_is_cut_into_frames_of_up_to_8_mib_and_not_copied() -> None:
    for size in [0, 1, 8 * 2**20, 8 * 2**20 + 1, 17 * 2**20]:
        with row(size):
            vector = bytearray(size)
            cut = chunks(vector)
            assert [len(chunk) for chunk in cut] == [min(8 * 2**20, size - at) for at in range(0, size, 8 * 2**20)]
            assert wire.CHUNK_BYTES <= wire.MAX_FRAME_BYTES
            if cut:
                vector[-1] = 7
                assert cut[-1][-1] == 7


def test_settings_that_nest_deeply_are_refused() -> None:
    for (read, header, key), nest, depth in product(
        [
            (read_to_server, HELLO, "overrides"),
            (read_to_server, HELLO, "proposed_run"),
            (read_to_worker, WELCOME, "run"),
        ],
        [b"\x91", b"\x81\xa1a"],
        [5, 100, 900, 1023, 5000, 20_000],
    ):
        with row(read, header, key, nest, depth):
            settings = {name: value for name, value in header.items() if name != key} | {key: {"a": 0}}
            plain = msgpack.packb(settings)
            assert plain.endswith(b"\x00")
            read([PROTOCOL_TAG, plain])
            with pytest.raises(WireError):
                read([PROTOCOL_TAG, plain[:-1] + nest * depth + b"\x00"])


@pytest.mark.parametrize(
    "header", [PULL | {"\u202edoow": 1}, {"type": "\u202eLLUP", "request": 1}, PULL | {"\x1b[2J": 1}]
)
def test_an_error_quotes_nothing_that_could_fool_its_reader(header: dict[str, Any]) -> None:
    for read in (read_to_server, read_to_worker):
        with pytest.raises(WireError) as refused:
            read(framed(header))
        assert str(refused.value).isascii()
        assert str(refused.value).isprintable()


def test_unknown_fields_of_a_later_release_alone_are_ignored() -> None:
    later, same, earlier = "99.0.0+0123456", release(), "0.0.1"
    for header, sender, is_read in [
        ({**HELLO, "colour": 1, "release": later}, "", True),
        ({**HELLO, "colour": 1, "release": same}, "", False),
        ({**HELLO, "colour": 1, "release": earlier}, later, False),
        ({**HELLO, "colour": 1}, "", False),
        ({**PULL, "colour": [{"a": 1}]}, later, True),
        ({**PULL, "colour": 1}, same, False),
        ({**PULL, "colour": 1}, "nonsense", False),
        ({**PULL, "colour": 1, "request": "1"}, later, False),
        ({**PULL, "type": "PULLL"}, later, False),
        ({**HELLO, "release": later, "code": {"a": {"hash": "b", "place": "c", "colour": 1}}}, later, False),
        ([PULL], later, False),
    ]:
        with row(header):
            if is_read:
                message, _ = read_to_server(framed(header), lambda sender=sender: sender)
                assert not hasattr(message, "colour")
            else:
                with pytest.raises(WireError):
                    read_to_server(framed(header), lambda sender=sender: sender)
