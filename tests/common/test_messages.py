import re
from pathlib import Path
from typing import Any, get_args

import msgpack
import msgspec
import pytest

import common
from common.errors import WireError
from common.messages import CARRIES_VECTOR, Heartbeat, Message, State, ToServer, ToWorker, Update
from common.wire import PROTOCOL_TAG, read_to_server

PAGE = (Path(common.__file__).parent / "PROTOCOL.md").read_text()
EVERY_MESSAGE = get_args(ToServer) + get_args(ToWorker)

# The least that each message to the server must say, written from PROTOCOL.md, sections 5 and 8.
LEAST: dict[str, dict[str, Any]] = {
    "HELLO": {"worker_id": "a", "incarnation": 0, "protocols": [1, 1]},
    "SEED": {"schema": []},
    "PULL": {},
    "PUSH": {"sequence": 1, "computed_on": 0, "epoch": 0, "schema_hash": "0f"},
    "PUSHPULL": {
        "sequence": 1, "computed_on": 0, "epoch": 0, "schema_hash": "0f", "have_version": 0, "have_epoch": 0,
    },
    "REPORT": {"sequence": 1},
    "HEARTBEAT": {},
    "GOODBYE": {},
    "STATUS_REQUEST": {},
    "CHECKPOINT_REQUEST": {},
    "STOP_REQUEST": {},
    "FOLLOW": {"address": "a:1"},
    "FOLLOWED": {"follow": 1, "number": 0},
    "FENCE": {"seeded_in": 1, "latest_epoch": 2, "address": "a:1"},
}  # fmt: skip

# What is meant when a field is left out; the page's table.
DEFAULTS: dict[str, dict[str, Any]] = {
    "HELLO": {
        "codecs": ("float32",), "host": "", "environments": 0, "wishes": {}, "proposal": None, "oldest": 1,
        "seeded_in": 0, "latest_epoch": 0,
    },
    "SEED": {"codec": "float32", "inline": b""},
    "PULL": {"have_version": 0, "have_epoch": 0, "target": False, "codec": "float32"},
    "PUSH": {"steps": 0, "codec": "float32", "inline": b""},
    "PUSHPULL": {"steps": 0, "codec": "float32", "inline": b""},
    "REPORT": {"episodes": (), "meters": {}},
    "GOODBYE": {"reason": ""},
}  # fmt: skip

COUNTS = [0, 1, 2**62]
NO_COUNTS = [-1, 2**62 + 1, 2**64 - 1, -(2**63), 1.0, 0.5, float("nan"), float("inf"), 1e30, True, "1", b"1", None, [1]]
NAMES = ["a", "x" * 100, "ö" * 100]
CONTROL = ["a\0", "a\n", "\x1b[2J", "two\nlines", "\x7f", "\x9b"]
NO_NAMES = ["", "x" * 101, b"a", 1, None, *CONTROL]
TEXTS = ["", "x" * 200]
NO_TEXTS = ["x" * 201, b"", None, *CONTROL]


def read(tag: str, **fields: Any) -> ToServer:
    header = {"type": tag, "request": 1} | LEAST[tag] | fields
    return read_to_server([PROTOCOL_TAG, msgpack.packb(header)])[0]


def fields_of(kind: type[Message]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


@pytest.mark.parametrize(
    ("tag", "field", "good", "bad"),
    [
        *((tag, "request", COUNTS, NO_COUNTS) for tag in LEAST),
        *((tag, "sequence", [1, 2**62], [0, *NO_COUNTS]) for tag in ("PUSH", "PUSHPULL", "REPORT")),
        *((tag, "computed_on", COUNTS, NO_COUNTS) for tag in ("PUSH", "PUSHPULL")),
        *((tag, "epoch", COUNTS, NO_COUNTS) for tag in ("PUSH", "PUSHPULL")),
        *((tag, "steps", COUNTS, NO_COUNTS) for tag in ("PUSH", "PUSHPULL")),
        *((tag, "have_version", COUNTS, NO_COUNTS) for tag in ("PULL", "PUSHPULL")),
        *((tag, "have_epoch", COUNTS, NO_COUNTS) for tag in ("PULL", "PUSHPULL")),
        ("HELLO", "incarnation", COUNTS, NO_COUNTS),
        ("HELLO", "environments", COUNTS, NO_COUNTS),
        ("HELLO", "oldest", [1, 2**62], [0, *NO_COUNTS]),
        ("HELLO", "worker_id", NAMES, NO_NAMES),
        ("HELLO", "host", TEXTS, NO_TEXTS),
        ("HELLO", "protocols", [[0, 2**62]], [[], [1], [1, 1, 1], [1, -1], 1, None]),
        ("HELLO", "codecs", [[], ["float32"] * 32], [["float32"] * 33, [""], "float32", None]),
        *((tag, "codec", NAMES, NO_NAMES) for tag in ("SEED", "PULL", "PUSH", "PUSHPULL")),
        *((tag, "schema_hash", NAMES, NO_NAMES) for tag in ("PUSH", "PUSHPULL")),
        *((tag, "reason", TEXTS, NO_TEXTS) for tag in ("GOODBYE", "STOP_REQUEST")),
        ("PULL", "target", [True, False], [1, 0, "true", None]),
        ("REPORT", "episodes", [[[-21.5, 0]], [[3, 2**62]] * 100], [[[1.0, -1]], [[1.0]], [["1", 1]], [[1, 1, 1]], 1]),
        ("REPORT", "meters", [{}, {str(n): n / 3 for n in range(32)}], [{str(n): 1.0 for n in range(33)}, {"": 1.0}]),
        (
            "SEED", "schema",
            [[], [{"name": "w", "shape": []}], [{"name": "w", "shape": [2], "dtype": "float32"}]],
            [[{"name": "w"}], [{"name": "w", "shape": [2], "dtype": "float64"}], [{"name": "w", "shape": [1.5]}],
             [{"name": "w", "shape": [2], "stride": 1}], {"w": [2]}, None],
        ),
    ],
)  # fmt: skip
def test_a_field_has_these_bounds(tag: str, field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        read(tag, **{field: value})
    for value in bad:
        with pytest.raises(WireError, match=field):
            read(tag, **{field: value})


@pytest.mark.parametrize("tag", LEAST)
def test_a_message_may_say_the_least_and_the_rest_takes_its_defaults(tag: str) -> None:
    message = read(tag)
    assert {name: getattr(message, name) for name in DEFAULTS.get(tag, {})} == DEFAULTS.get(tag, {})
    for field in LEAST[tag]:
        header = {"type": tag, "request": 1} | {name: value for name, value in LEAST[tag].items() if name != field}
        with pytest.raises(WireError, match=f"missing required field `{field}`"):
            read_to_server([PROTOCOL_TAG, msgpack.packb(header)])


@pytest.mark.parametrize("kind", EVERY_MESSAGE)
def test_the_protocol_page_names_every_message_and_all_its_fields(kind: type[Message]) -> None:
    tag = kind.__struct_config__.tag
    told = [line for line in PAGE.splitlines() if line.startswith("|") and re.search(rf"\b{tag}\b", line)]
    assert told, f"{tag} stands in no table"
    if tag == "PUSHPULL":  # "the fields of PUSH, …"
        told += [line for line in PAGE.splitlines() if line.startswith("| PUSH ")]
    for field in fields_of(kind):
        assert any(re.search(rf"\b{field}\b", line) for line in told), f"{tag}: {field}"


def test_the_page_and_the_code_agree_on_who_carries_a_vector() -> None:
    assert {kind.__struct_config__.tag for kind in CARRIES_VECTOR} == {
        "SEED", "PUSH", "PUSHPULL", "WEIGHTS", "STATE", "UPDATE",
    }  # fmt: skip
    from_workers = [kind for kind in CARRIES_VECTOR if kind not in (State, Update)]
    assert all("codec" in fields_of(kind) and "inline" in fields_of(kind) for kind in from_workers)


def test_every_message_has_a_request_and_a_type_of_its_own() -> None:
    assert all("request" in fields_of(kind) for kind in EVERY_MESSAGE)
    assert len({kind.__struct_config__.tag for kind in EVERY_MESSAGE}) == len(EVERY_MESSAGE)


def test_messages_do_not_change() -> None:
    message: Any = Heartbeat(request=1)
    with pytest.raises(AttributeError):
        message.request = 2
