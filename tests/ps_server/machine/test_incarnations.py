"""Which process may speak as a worker: nobody takes another's name, and nobody is locked out of one."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol import messages
from ps_common.protocol.messages import Welcome
from ps_common.protocol.names import MOST
from ps_common.protocol.record import record_from_json, record_to_json
from ps_common.release import release
from ps_server.machine.admission import FURTHEST
from ps_server.machine.membership import SILENT_SECONDS
from ps_server.machine.parts import Sender
from tests.ps_server.transcripts import (
    LEASE_SECONDS,
    Transcript,
    encoded,
    notes,
    only,
    restored_run,
    secret_of,
    sends,
)

STOLEN = "stolen connection"


def after_its_lease(server: Transcript) -> None:
    server.after(LEASE_SECONDS + 0.1)


def resumed(server: Transcript) -> Transcript:
    """A server that goes on from a checkpoint of this moment, and has heard nobody yet."""
    run = restored_run(
        server.run.weights.vectors(), record_from_json(record_to_json(server.run.record(now=server.now))), epoch=8
    )
    return Transcript(run, epoch=8, now=server.now)


# -- the number of a process ------------------------------------------------------------------------------------------


def test_a_later_process_waits_for_the_lease_of_the_earlier_and_starts_its_sequences_afresh(server: Transcript) -> None:
    server.push("a", 1)
    refused = server.refusal("new", server.hello_of("a", process=2))
    assert refused.code == "name_taken"
    assert "--name" in refused.reason
    assert any("name_taken" in line for line in notes(server.effects)), "the log names it"
    server.push("a", 2)
    after_its_lease(server)
    assert server.hello("a", process=2, peer="new").settled_through == 0
    assert server.push("a", 1, peer="new").verdict == "applied"


# -- thieves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("incarnation", [0, 1, 2, 3, 1000, MOST])
def test_nobody_speaks_for_a_living_worker_without_its_secret(server: Transcript, incarnation: int) -> None:
    """The issue's attack: id and incarnation of the owner, and an `oldest` that makes all its pushes duplicates."""
    server.push("a", 1)
    thief = server.hello_of("a", process=666, incarnation=incarnation, oldest=MOST)
    assert server.refusal(STOLEN, thief).code in ("name_taken", "superseded")
    assert server.push("a", 2).verdict == "applied"
    assert server.refusal(STOLEN, server.push_of(3), encoded([1, 1, 1])).code == "unknown_worker"


def test_no_claim_locks_a_name_out_for_good(server: Transcript) -> None:
    """A server that was restored believes a claim above its ledger, when nobody with the name lives."""
    for thief in range(1, 5):
        after_its_lease(server)
        given = server.hello("a", process=600 + thief, incarnation=MOST, peer=f"{STOLEN} {thief}").incarnation
        assert given == 1 + thief * FURTHEST
    after_its_lease(server)
    assert server.hello("a", process=2, peer="new").incarnation == given + 1


def test_the_secret_is_in_no_checkpoint_no_status_and_no_state(server: Transcript) -> None:
    server.hello("c")
    told = server.answer(messages.StatusReply, "x", messages.StatusRequest(request=1))
    follow = messages.Follow(request=1, address="x:1", release=release())
    state = [send for send in sends(server.say("x", follow)) if send.vector]
    kept = b"".join(
        [
            record_to_json(server.run.record(now=server.now)),
            msgspec.json.encode(told),
            bytes(state[0].vector[0]),
            msgspec.json.encode(state[0].message),
        ]
    )
    assert b'"c"' in kept
    assert secret_of("c").encode() not in kept


# -- servers that come back -------------------------------------------------------------------------------------------


def test_a_restored_server_knows_its_workers_by_their_secrets(server: Transcript) -> None:
    again = resumed(server)
    for incarnation in (0, 1, MOST):
        assert again.refusal(STOLEN, again.hello_of("a", process=666, incarnation=incarnation)).code in (
            "name_taken",
            "superseded",
        )
    assert again.hello("a", incarnation=1).incarnation == 1


# -- keys -------------------------------------------------------------------------------------------------------------


def said(server: Transcript, peer: str, hello: messages.Hello, key: str) -> messages.ToWorker:
    effects = server.machine.receive(peer.encode(), hello, now=server.now, sender=Sender(key=key, is_admin=False))
    return only(type(sends(effects)[0]), effects).message


def test_a_name_stays_with_the_key_that_was_the_first_to_use_it(server: Transcript) -> None:
    assert isinstance(said(server, "c", server.hello_of("c"), "key 1"), Welcome)
    for _ in range(2):
        for thief in (server.hello_of("c"), server.hello_of("c", process=2)):
            refused = said(server, STOLEN, thief, "key 2")
            assert isinstance(refused, messages.Refused)
            assert refused.code == "not_yours"
        after_its_lease(server)
    assert isinstance(said(server, "c2", server.hello_of("c", process=2), "key 1"), Welcome)
    again = resumed(server)
    after_its_lease(again)
    refused = said(again, STOLEN, again.hello_of("c", process=3), "key 2")
    assert isinstance(refused, messages.Refused)
    assert refused.code == "not_yours", "the checkpoint knows the key"


def test_a_name_is_free_for_another_key_when_its_worker_was_silent_for_a_day(server: Transcript) -> None:
    assert isinstance(said(server, "c", server.hello_of("c"), "key 1"), Welcome)
    server.after(SILENT_SECONDS)
    assert isinstance(said(server, "another", server.hello_of("c", process=2), "key 2"), Welcome)
    for thief in (server.hello_of("c"), server.hello_of("c", process=3)):
        refused = said(server, STOLEN, thief, "key 1")
        assert isinstance(refused, messages.Refused)
        assert refused.code == "not_yours"


# -- any history ------------------------------------------------------------------------------------------------------

events = st.one_of(
    st.tuples(st.just("fresh"), st.integers(1, 6)),
    st.tuples(st.just("back"), st.integers(1, 6)),
    st.tuples(st.just("leave"), st.just(0)),
    st.tuples(st.just("time"), st.sampled_from([1, 4, 6])),
    st.tuples(st.just("crash"), st.just(0)),
    st.tuples(st.just("save"), st.just(0)),
)


@given(st.lists(events, max_size=40))
def test_of_the_processes_of_a_worker_id_one_at_a_time_is_served(happened: list[tuple[str, int]]) -> None:
    """Each push of a process is applied at most once by each life of the ledger, over all restarts and restores."""
    server = Transcript.seeded(workers=("first",))
    numbers: dict[int, int] = {}  # what each process was last told
    peers = itertools.count()
    saved = resumed(server)
    for event, number in happened:
        match event:
            case "time":
                server.after(number)
            case "leave":
                for member in server.machine.membership.alive():
                    server.say(member.peer.decode(), messages.Goodbye(request=1))
            case "save":
                saved = resumed(server)
            case "crash":
                saved.now = max(saved.now, server.now)
                server, saved = saved, resumed(saved)
            case _:
                peer = f"p{next(peers)}"
                known = numbers.get(number, 0) if event == "back" else 0
                hello = server.hello_of("w", process=number, incarnation=known)
                reply = server.ask(peer, hello).message
                if isinstance(reply, Welcome):
                    assert known in (0, reply.incarnation) or reply.incarnation < known + FURTHEST
                    numbers[number] = reply.incarnation
                    living = server.machine.membership.alive()
                    assert [member.peer.decode() for member in living if member.worker_id == "w"] == [peer]
                else:
                    assert isinstance(reply, messages.Refused)
                    assert reply.code in ("name_taken", "superseded")
