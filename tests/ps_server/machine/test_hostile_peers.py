"""
Messages of every kind, in every order: the machine never raises, replies to each request once, in a message that can be
sent, and applies each push once.
"""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol import messages
from ps_common.protocol.messages import CheckpointRequest, Episode, ToServer
from ps_common.protocol.names import MOST
from ps_common.protocol.record import record_from_json, record_to_json
from ps_common.protocol.tensors import TensorSpec
from ps_common.protocol.wire import read_to_server, read_to_worker, to_frames
from ps_common.release import release
from ps_server.state.effects import SaveCheckpoint, Send
from ps_server.state.guards import MOST_T
from tests.ps_server.transcripts import EPOCH, LEASE_SECONDS, RUN_ID, SCHEMA, Transcript, encoded, secret_of, sends
from tests.simulation.violations import violations_at

HUGE = 2**53 - 1
counts = st.sampled_from([0, 1, 2, 3, 60, HUGE])
sequences = st.sampled_from([1, 2, 3, 4, 64, 65, 66, HUGE])
codecs = st.sampled_from(["float32", "float32", "float32", "zip"])
requests = st.integers(1, 10**6)
vectors = st.sampled_from(
    [
        *[encoded([1, 2, 3])] * 4,
        encoded([0, 0, 0]),
        encoded([np.nan, 0, 0]),
        encoded([3e38, 3e38, 3e38]),
        encoded([1, 2]),
        [encoded([1, 2, 3])[0][:5], encoded([1, 2, 3])[0][5:]],
        [],
        [b"x" * 1000],
    ]
)
PUSH: dict[str, Any] = {
    "request": requests,
    "sequence": sequences,
    "oldest": sequences,
    "computed_on": counts,
    "epoch": st.sampled_from([0, EPOCH]),
    "schema_hash": st.sampled_from([SCHEMA.hash, SCHEMA.hash, "x"]),
    "steps": counts,
    "codec": codecs,
    "weight_codec": st.one_of(st.none(), codecs),
    "have_version": counts,
    "have_epoch": st.sampled_from([0, EPOCH]),
}
hellos = st.builds(
    messages.Hello,
    request=requests,
    worker_id=st.sampled_from(["a", "b", "_host.example:5555/a@b+c-1", "x" * 100]),
    secret=st.sampled_from([secret_of("1"), "x" * 16, "y" * 100]),
    incarnation=st.sampled_from([0, 1, 1, 1, 2, HUGE]),
    run_id=st.sampled_from(["", "", RUN_ID, "another"]),
    latest_epoch=st.sampled_from([0, 0, 0, EPOCH, HUGE]),
    protocols=st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (0, HUGE)]),
    codecs=st.sampled_from([("float32",), ("float32",), (), ("zip",)]),
    environments=st.sampled_from([0, 1, 2, 3, 60, messages.MOST_ENVIRONMENTS]),
    oldest=sequences,
    overrides=st.sampled_from([{}, {}, {}, {"": 1}, {"seed": None}, {".a": (1,)}, {"budget.max_steps": 0}]),
    proposed_run=st.sampled_from([None, {}, {"optimizer": {"name": "adam"}}, {"optimizer": 3}, {"x": {"y": None}}]),
)
schemas = st.sampled_from([SCHEMA.specs, SCHEMA.specs, (), (TensorSpec("w", (HUGE,)),), (TensorSpec("w", (3,)),)])
numbers = st.sampled_from([1.0, -21.0, float("nan"), float("inf"), 1.7e308])
others: st.SearchStrategy[ToServer] = st.one_of(
    st.builds(messages.Seed, request=requests, schema=schemas, codec=codecs),
    st.builds(messages.Pull, request=requests, have_version=counts, have_epoch=counts, target=st.booleans()),
    st.builds(messages.Push, **PUSH),
    st.builds(
        messages.Report,
        request=requests,
        sequence=sequences,
        episodes=st.lists(st.builds(Episode, numbers, counts), max_size=120).map(tuple),
        meters=st.dictionaries(st.text(min_size=1, max_size=5), numbers, max_size=3),
    ),
    st.builds(messages.Heartbeat, request=requests),
    st.builds(messages.Goodbye, request=requests),
    st.builds(messages.StatusRequest, request=requests),
    st.builds(CheckpointRequest, request=requests),
)
peers = st.sampled_from(["1", "2", "3"])
steps: st.SearchStrategy[tuple[str, Any, Any]] = st.one_of(
    st.tuples(peers, hellos, vectors),
    st.tuples(peers, others, vectors),
    st.tuples(peers, others, vectors),
    st.tuples(st.just("time"), st.sampled_from([0.25, LEASE_SECONDS + 1, 100.0]), st.just([])),
)


def sendable(send: Send) -> None:
    """The reply survives the wire, and is small enough for the reader."""
    frames = to_frames(send.message, [send.snapshot.buffer] if send.snapshot else [])
    # NaN is not equal to itself: compare what is written.
    assert repr(read_to_worker(frames)[0]) == repr(send.message)


@given(st.lists(steps, max_size=40), st.booleans())
def test_every_message_is_answered_once_and_hurts_no_other_worker(
    said: list[tuple[str, Any, Any]], seeded: bool
) -> None:
    server = Transcript.seeded(workers=("1", "2")) if seeded else Transcript()
    for peer, message, buffers in said:
        if peer == "time":
            server.after(message)
        elif isinstance(message, CheckpointRequest):
            server.say(peer, message)
        else:
            server.ask(peer, message, [] if not isinstance(message, messages.CARRIES_VECTOR) else buffers)
        assert violations_at(server.machine) == ""
        for send in sends(server.effects):
            sendable(send)
        if any(isinstance(effect, SaveCheckpoint) for effect in server.effects):
            for send in sends(server.machine.checkpoint_saved("here.safetensors")):
                sendable(send)
    server.check()
    weights = server.weights() if server.machine.version else []
    assert np.isfinite(weights).all()
    assert not weights or reads_back(server)
    assert server.answer(messages.StatusReply, "admin", messages.StatusRequest(request=1)).status.version >= 0


def test_a_run_counts_no_more_steps_than_a_checkpoint_can_keep() -> None:
    server = Transcript.seeded()
    server.run.progress.global_steps = MOST_T - 19
    assert server.push("a", 1, steps=20).code == "absurd_steps"
    server.run.progress.updates = 2**40  # as many as so many steps take
    server.run.progress.staleness_sum = MOST
    assert server.push("a", 2, steps=19, computed_on=0).verdict == "applied"
    assert reads_back(server)


def test_a_proposed_run_that_no_reply_can_carry_is_refused() -> None:
    server = Transcript()
    hidden = {"network": {"name": "mlp", "hidden": [64] * 50_000}}
    assert server.refusal("a", server.hello_of("a", proposed_run=hidden)).code == "bad_run"


def test_pushes_that_wait_and_will_be_discarded_vouch_for_no_games() -> None:
    server = Transcript.seeded(workers=("a", "b"), consistency={"rule": "sync"})
    for sequence in (2, 3):
        assert server.say("a", server.push_of(sequence, steps=HUGE), encoded([1, 1, 1])) == []
    games = tuple(Episode(1.0, HUGE) for _ in range(2))
    report = messages.Report(request=server.next_request(), sequence=1, episodes=games)
    assert server.refusal("a", report).code == "absurd_length"
    assert reads_back(server)


def test_a_standby_names_an_address_that_others_can_connect_to(server: Transcript) -> None:
    for address in ("x", "a:0", "a:70000", "[a:1"):
        follow = messages.Follow(request=server.next_request(), address=address, release=release())
        assert server.refusal("stranger", follow).code == "bad_address"
    assert reads_back(server)


def reads_back(server: Transcript) -> bool:
    """Whether the record of a checkpoint made now is that of the run when it is read."""
    record = server.run.record(now=server.now)
    return record_from_json(record_to_json(record)) == record


def test_the_status_of_a_crowd_that_talks_much_still_fits_its_header() -> None:
    """Names of 100 characters, 32 meters each, as far as a message allows: somebody has to be left out, not all."""
    server = Transcript.seeded(workers=("a",))
    meters = {f"{'e' * 97}{number:03d}": 1.0 for number in range(32)}
    for number in range(250):
        worker = f"{'w' * 97}{number:03d}"
        server.hello(worker, host="h" * 200)
        report = messages.Report(request=1, sequence=1, meters=meters)
        read_to_server(to_frames(report))  # it is a message that may arrive
        server.answer(messages.Noted, worker, report)
    reply = server.ask("admin", messages.StatusRequest(request=1))
    sendable(reply)
    assert isinstance(reply.message, messages.StatusReply)
    assert reply.message.status.workers_alive == 251
    assert len(reply.message.status.workers) >= 100
