"""Deltas at the server: their workers and versions, and the workers that get whole weights."""

import numpy as np
import pytest

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.lineage import Shard
from ps_server.state.effects import Send
from ps_server.state.weight_store import MOST_DELTAS, DeltaBases
from tests.ps_server.transcripts import EPOCH, SCHEMA, Transcript, a_run


def pull(server: Transcript, *, have: int, epoch: int = EPOCH, target: bool = False) -> Send:
    """The reply to a pull that takes deltas."""
    request = server.next_request()
    fields = {"have_version": have, "have_epoch": epoch, "target": target}
    return server.ask("a", messages.Pull(request=request, codec="delta", **fields))


def read(send: Send) -> tuple[str, int, bytes]:
    """Codec, base and bytes."""
    assert isinstance(send.message, messages.Weights)
    assert send.snapshot is not None
    return send.message.codec, send.message.base, bytes(send.snapshot.buffer)


def halves(server: Transcript) -> bytes:
    """The newest weights in bfloat16."""
    return bytes(CODECS["bfloat16"].encode(server.run.weights.flat))


def restored(before: bytes, send: Send, *, base: int) -> bytes:
    codec, named, delta = read(send)
    assert (codec, named) == ("delta", base)
    return Base(before, SCHEMA.weights).restored([delta])


def pushed(server: Transcript, sequences: range) -> None:
    for sequence in sequences:
        server.push("a", sequence, (0.1, -2, 3))


def test_a_worker_with_no_version_gets_whole_weights_and_then_deltas() -> None:
    server = Transcript.seeded()
    first = halves(server)
    assert read(pull(server, have=0)) == ("bfloat16", 0, first)
    pushed(server, range(1, 4))
    assert restored(first, pull(server, have=1), base=1) == halves(server)
    assert isinstance(pull(server, have=4).message, messages.NotModified)


def test_a_version_that_nobody_was_sent_for_deltas_is_no_base() -> None:
    server = Transcript.seeded()
    pushed(server, range(1, 2))
    server.pull("a")  # as float32
    pushed(server, range(2, 3))
    assert read(pull(server, have=2))[0] == "bfloat16"


def test_a_version_that_is_gone_is_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeltaBases.__init__, "__kwdefaults__", {"most_bytes": 2 * 2 * SCHEMA.size})
    server = Transcript.seeded()
    for sequence in range(1, 4):
        pull(server, have=0)  # of version `sequence`
        pushed(server, range(sequence, sequence + 1))
    assert read(pull(server, have=1))[:2] == ("bfloat16", 0)
    assert read(pull(server, have=3))[:2] == ("delta", 3)


def test_a_reply_that_waited_leads_from_the_same_version_to_the_newest() -> None:
    server = Transcript.seeded()
    first = read(pull(server, have=0))[2]
    pushed(server, range(1, 2))
    waiting = pull(server, have=1)
    pushed(server, range(2, 4))
    renewed = server.machine.pushes.renewed(waiting, target=False)
    assert isinstance(renewed.message, messages.Weights)
    assert renewed.message.version == 4
    assert restored(first, renewed, base=1) == halves(server)


def test_each_shard_leads_from_versions_of_its_own() -> None:
    shard = Shard(number=1, addresses=("a:1", "b:2"))
    server = Transcript(a_run(), shard=shard)
    server.hello("a")
    schema = type(SCHEMA)(SCHEMA.specs, shard=1, shards=2)
    seed = messages.Seed(request=server.next_request(), schema=SCHEMA.specs)
    server.ask("a", seed, [bytes(4 * schema.size)])
    first = read(pull(server, have=0))[2]
    push = server.push_of(1, schema_hash=schema.hash)
    server.ask("a", push, [np.ones(schema.size, dtype="<f4").tobytes()])
    codec, base, delta = read(pull(server, have=1))
    assert (codec, base) == ("delta", 1)
    assert Base(first, schema.weights).restored([delta]) == halves(server)


def test_a_delta_is_made_once_and_few_lead_to_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer asks for one from each version that is kept, again and again: each compression would delay all pushes."""
    made: list[Base] = []
    delta_to = Base.delta_to
    monkeypatch.setattr(Base, "delta_to", lambda base, newer: (made.append(base), delta_to(base, newer))[1])
    server = Transcript.seeded()
    for version in range(1, 21):
        pull(server, have=0)
        pushed(server, range(version, version + 1))
    for _ in range(10):
        codecs = [read(pull(server, have=have))[0] for have in range(1, 21)]
        assert codecs == ["delta"] * MOST_DELTAS + ["bfloat16"] * (20 - MOST_DELTAS)
    assert len(made) == MOST_DELTAS
    pushed(server, range(21, 22))
    assert read(pull(server, have=20))[:2] == ("delta", 20), "those of before lead to another version"
