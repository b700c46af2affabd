"""Deltas at the worker's machine: replies have whole weights."""

import msgspec
import pytest

from ps_client.machine.effects import Resolve
from ps_common.protocol import messages
from ps_common.protocol.deltas import Base
from tests.ps_client.client_transcripts import (
    SCHEMA,
    hello_of,
    joined_client,
    sent,
    vector,
    weights,
    welcome,
)

OLDER, NEWER = bytes([0, 1, 2, 3]), bytes([1, 1, 2, 4])
BASE = Base(OLDER, SCHEMA.weights)


def delta(request: int, *, base: int, version: int = 4) -> messages.Weights:
    return msgspec.structs.replace(weights(request, version=version), codec="delta", base=base)


def test_a_delta_becomes_the_whole_weights_of_the_reply() -> None:
    client = joined_client()
    ticket, effects = client.pull(have_epoch=1, have_version=3, codec=BASE, now=0.0)
    assert [message.codec for message in sent(effects) if isinstance(message, messages.Pull)] == ["delta"]
    (reply,) = client.receive(delta(ticket, base=3), [BASE.delta_to(NEWER)], now=0.0)
    whole = msgspec.structs.replace(weights(ticket, version=4), codec="bfloat16")
    assert reply == Resolve(ticket, whole, [NEWER])


def test_a_push_that_is_sent_again_keeps_its_base() -> None:
    client = joined_client()
    fields = {"epoch": 1, "computed_on": 3, "steps": 20}
    ticket, _ = client.push("float32", vector(1, 2), **fields, weight_codec=BASE, now=0.0)
    client.receive(messages.Refused(request=ticket, code="unknown_worker", reason="who?"), now=0.0)
    again = client.receive(welcome(hello_of(client.tick(now=0.1)).request), now=0.1)
    assert [(one.weight_codec, one.have_version) for one in sent(again) if isinstance(one, messages.Push)] == [
        ("delta", 3)
    ]
    settled = messages.Settlement(sequence=1, verdict="applied", version=4)
    reply = msgspec.structs.replace(delta(ticket, base=3), settled=settled)
    (resolve,) = client.receive(reply, [BASE.delta_to(NEWER)], now=0.1)
    assert isinstance(resolve, Resolve)
    assert resolve.vector == [NEWER]


@pytest.mark.parametrize(
    ("codec", "base", "sent_bytes"),
    [(BASE, 2, BASE.delta_to(NEWER)), (BASE, 3, b"no delta"), ("bfloat16", 3, BASE.delta_to(NEWER))],
    ids=["from another version", "no delta", "not asked for"],
)
def test_a_delta_that_cannot_be_applied_ends_the_worker(codec: str | Base, base: int, sent_bytes: bytes) -> None:
    client = joined_client()
    ticket, _ = client.pull(have_epoch=1, have_version=3, codec=codec, now=0.0)
    client.receive(delta(ticket, base=base), [sent_bytes], now=0.0)
    assert "delta" in str(client.error)
