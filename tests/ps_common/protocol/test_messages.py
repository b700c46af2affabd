import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgpack
import msgspec
import pytest
from msgspec import inspect

import ps_common
from ps_common.errors import WireError
from ps_common.protocol.messages import CARRIES_VECTOR, Message, State, ToServer, ToWorker, Update
from ps_common.protocol.wire import PROTOCOL_TAG, read_to_server, read_to_worker
from tests.rows import row

PAGE = (Path(ps_common.__file__).parent.parent / "PROTOCOL.md").read_text()
EVERY_MESSAGE = get_args(ToServer) + get_args(ToWorker)

# The least that each message to the server must say, written from PROTOCOL.md, sections 5 and 8.
LEAST: dict[str, dict[str, Any]] = {
    "HELLO": {"worker_id": "a", "secret": "0123456789abcdef", "protocols": [1, 1]},
    "SEED": {"schema": []},
    "PULL": {},
    "PUSH": {"sequence": 1, "computed_on": 0, "epoch": 0, "schema_hash": "0f"},
    "REPORT": {"sequence": 1},
    "HEARTBEAT": {},
    "GOODBYE": {},
    "STATUS_REQUEST": {},
    "CHECKPOINT_REQUEST": {},
    "CREDIT_REQUEST": {"bytes": 1},
    "SUBSCRIBE": {},
    "WATCH": {"worker_id": "a"},
    "FRAME": {"score": 0.0, "value": 0.0},
    "ADJUST": {"settings": {"paused": True}},
    "RUN_REQUEST": {},
    "STOP_REQUEST": {},
    "EVALUATION": {
        "run_id": "1", "version": 1, "global_steps": 20, "minutes": 0.5, "games": 10, "mean_return": -1.5,
    },
    "FOLLOW": {"address": "a:1"},
    "FOLLOWED": {"follow": 1, "number": 0},
    "PROMOTE": {},
    "FENCE": {"run_id": "1", "latest_epoch": 2, "epoch_proof": "", "address": "a:1"},
}  # fmt: skip

WELCOME = {
    "type": "WELCOME", "request": 1, "protocol": 1, "epoch": 1, "number": 0, "schema": [], "version": 0, "codecs": [],
    "global_steps": 0, "run_id": "a", "incarnation": 1, "epoch_proof": "a", "settled_through": 0, "reported_through": 0,
    "lease_seconds": 5.0,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "type": "STATUS", "request": 1, "schema": [],
    "status": {
        "phase": "empty", "epoch": 1, "refused": {}, "not_modified": 0, "checkpoint_version": 0,
        "checkpoint_failures": 0, "workers_alive": 0, "workers": [],
    },
}  # fmt: skip

A_WORKER = {
    "worker_id": "a", "number": 0, "host": "", "environments": 1, "alive": True, "silent_seconds": 0.0, "pushes": 0,
    "discarded": 0, "steps": 0, "staleness": 0.0, "meters": {},
}  # fmt: skip

# Control, format and direction characters, line separators, a private one, none at all, a look-alike of "a".
UNSAFE = ["a\0", "a\n", "\x1b[2J", "two\nlines", "\x7f", "\x9b", "a\u202eb", "a\u2066b", "a\u200bb", "a\u2028b"]
UNSAFE += ["\u00ad", "\ufeff", "\ue000", "\U000e0041", "\U0010ffff", "\u0430"]
CHECKED_APART = {"overrides", "proposed_run", "run", "settings"}  # by the test after that of all the others


def read(tag: str, **fields: Any) -> ToServer:
    header = {"type": tag, "request": 1} | LEAST[tag] | fields
    return read_to_server([PROTOCOL_TAG, msgpack.packb(header)])[0]


def fields_of(kind: type[Message]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def test_the_protocol_page_names_every_message_and_all_its_fields() -> None:
    for kind in EVERY_MESSAGE:
        with row(kind):
            tag = kind.__struct_config__.tag
            told = [line for line in PAGE.splitlines() if line.startswith("|") and re.search(rf"\b{tag}\b", line)]
            assert told, f"{tag} stands in no table"
            for field in set(fields_of(kind)) - {"request"}:  # the page says once that every message has it
                assert any(re.search(rf"\b{field}\b", line) for line in told), f"{tag}: {field}"


def test_the_page_and_the_code_agree_on_the_messages_with_a_vector() -> None:
    assert {kind.__struct_config__.tag for kind in CARRIES_VECTOR} == {"SEED", "PUSH", "WEIGHTS", "STATE", "UPDATE"}
    from_workers = [kind for kind in CARRIES_VECTOR if kind not in (State, Update)]
    assert all("codec" in fields_of(kind) and "inline" in fields_of(kind) for kind in from_workers)


def test_no_message_can_carry_a_character_that_fools_its_reader() -> None:
    """Each text of a message says which characters it may have: `common/ps_common/protocol/names.py`."""
    for kind in EVERY_MESSAGE:
        with row(kind):
            for text in parts_in(inspect.type_info(kind), inspect.StrType, CHECKED_APART):
                assert text.pattern is not None, f"{kind.__name__} has a text of any characters"
                assert not any(re.search(text.pattern, unsafe) for unsafe in UNSAFE), text.pattern


def test_each_number_that_a_server_states_has_bounds() -> None:
    """Else a hostile one ends the programs that draw and divide: of those that show games and settle pushes, too."""
    # Guards judge what workers claim, and shapes and places have checks of their own.
    apart = {*CHECKED_APART, "frame", "message", "schema", "vectors", "shard"}
    for kind in get_args(ToWorker):
        with row(kind):
            for number in parts_in(inspect.type_info(kind), inspect.IntType | inspect.FloatType, apart):
                assert number.le is not None, f"{kind.__name__} has a number without bounds"
                assert number.ge is not None or number.gt is not None


def test_a_status_with_impossible_numbers_is_no_message() -> None:
    nan = float("nan")
    for told in [
        {"staleness_counts": [1] * 14},
        {"staleness_counts": [1] * 16},
        {"staleness_counts": [-1] * 15},
        {"staleness_mean": nan},
        {"mean_return_100": 1e308},
        {"best_mean_return_100": -1e308},
        {"minutes": -1.0},
        {"workers": [A_WORKER | {"meters": {"a": 1e31}}]},
        {"workers": [A_WORKER | {"meters": {str(number): 1.0 for number in range(33)}}]},
    ]:
        with row(told):
            status = {"type": "STATUS_UPDATE", "status": STATUS["status"] | told}
            with pytest.raises(WireError):
                read_to_worker([PROTOCOL_TAG, msgpack.packb(status)])
    for seconds in (0.0, -1.0, 1e-9, nan):
        with row(seconds):
            for lease in ({"type": "SUBSCRIBED", "event": 0, "epoch": 1}, {"type": "WATCHING"}, WELCOME | {"run": {}}):
                with pytest.raises(WireError, match="lease_seconds"):
                    read_to_worker([PROTOCOL_TAG, msgpack.packb(lease | {"request": 1, "lease_seconds": seconds})])


def test_nor_can_a_run_in_any_place() -> None:
    for unsafe in UNSAFE:
        with row(unsafe):
            runs: list[dict[str, Any]] = [
                {"preset": unsafe},
                {unsafe: 1},
                {"network": {"name": unsafe}},
                {"network": {unsafe: 1}},
            ]
            for run in [*runs, {"environment": {"actions": [1, unsafe]}}]:
                for field in ("overrides", "proposed_run"):
                    with pytest.raises(WireError, match="bad header"):
                        read("HELLO", **{field: run})
                for reply in (WELCOME, STATUS):
                    with pytest.raises(WireError, match="run: names and values"):
                        read_to_worker([PROTOCOL_TAG, msgpack.packb(reply | {"run": run})])


def parts_in(info: Any, wanted: Any, apart: set[str]) -> Iterator[Any]:
    """The types of all values of a wanted type that a value of this one may hold, but for fields of these names."""
    match info:
        case inspect.StructType():
            inner = [field.type for field in info.fields if field.name not in apart]
        case inspect.DictType():
            inner = [info.key_type, info.value_type]
        case inspect.UnionType():
            inner = list(info.types)
        case inspect.TupleType():
            inner = list(info.item_types)
        case inspect.VarTupleType():
            inner = [info.item_type]
        case inspect.Metadata():
            inner = [info.type]
        case _:
            inner = []
    if isinstance(info, wanted):
        yield info
    for one in inner:
        yield from parts_in(one, wanted, apart)
