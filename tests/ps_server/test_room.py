"""Room for pushes: even shares while they hold a vector, and turns in order of asking when they do not."""

import pytest

from common import messages
from ps_server.membership import Membership
from ps_server.room import TURN_SECONDS, Room
from tests.ps_server.transcripts import SCHEMA, Transcript, sends

VECTOR_BYTES = 4 * SCHEMA.size


def members(*workers: str) -> Membership:
    """Their connections have their names."""
    membership = Membership(lease_seconds=5.0)
    for number, worker in enumerate(workers):
        hello = messages.Hello(request=1, worker_id=worker, incarnation=1, protocols=(1, 1))
        membership.join(hello, worker.encode(), number=number, now=0.0)
    return membership


def room_for(budget_bytes: int) -> Room:
    """With workers a, b and c."""
    return Room(budget_bytes, members("a", "b", "c"))


@pytest.mark.parametrize(("workers", "credit"), [(0, 100), (1, 100), (2, 50), (10, 10), (11, 0)])
def test_a_credit_is_an_even_share_that_holds_a_vector_or_nothing(workers: int, credit: int) -> None:
    assert Room(100, members(*(f"w{number}" for number in range(workers)))).credit(10) == credit


def test_room_is_given_in_the_order_of_asking_until_the_budget_is_full() -> None:
    room = room_for(25)
    for number, peer in enumerate((b"b", b"a", b"c")):
        room.ask(peer, number, 10)
    assert room.next_turns(now=0.0) == [(b"b", 0), (b"a", 1)]
    assert room.waits(b"c")
    assert not room.waits(b"a")
    assert room.next_turns(now=0.0) == []
    room.arrived(b"a")
    assert room.next_turns(now=0.0) == [(b"c", 2)]


def test_a_small_push_does_not_overtake_a_large_one() -> None:
    room = room_for(25)
    for peer, size in ((b"a", 20), (b"b", 20), (b"c", 1)):
        room.ask(peer, 1, size)
    assert room.next_turns(now=0.0) == [(b"a", 1)]


def test_a_push_larger_than_the_budget_goes_alone() -> None:
    room = room_for(25)
    room.ask(b"a", 1, 1000)
    room.ask(b"b", 2, 1)
    assert room.next_turns(now=0.0) == [(b"a", 1)]
    room.arrived(b"a")
    assert room.next_turns(now=0.0) == [(b"b", 2)]


def test_who_asks_again_keeps_the_place_and_is_answered_under_the_new_number() -> None:
    room = room_for(10)
    for peer, request in ((b"a", 1), (b"b", 2), (b"c", 3), (b"b", 4)):
        room.ask(peer, request, 10)
    assert room.next_turns(now=0.0) == [(b"a", 1)]
    room.arrived(b"a")
    assert room.next_turns(now=0.0) == [(b"b", 4)]


def test_room_that_was_given_twice_counts_once() -> None:
    """The first answer was lost."""
    room = room_for(10)
    for request in (1, 2):
        room.ask(b"a", request, 10)
        assert room.next_turns(now=0.0) == [(b"a", request)]
    room.arrived(b"a")
    room.ask(b"b", 3, 10)
    assert room.next_turns(now=0.0) == [(b"b", 3)]


def test_the_dead_keep_nobody_waiting() -> None:
    membership = members("a", "b", "c")
    room = Room(10, membership)
    for peer in (b"a", b"b", b"c"):
        room.ask(peer, 1, 10)
    assert room.next_turns(now=0.0) == [(b"a", 1)]
    for member in membership.alive()[:2]:
        membership.leave(member)
    assert room.next_turns(now=0.0) == [(b"c", 1)]


def test_room_that_is_not_used_goes_to_the_next() -> None:
    room = room_for(10)
    room.ask(b"a", 1, 10)
    room.ask(b"b", 2, 10)
    assert room.next_turns(now=0.0) == [(b"a", 1)]
    assert room.next_turns(now=TURN_SECONDS) == []
    assert room.next_turns(now=TURN_SECONDS + 0.1) == [(b"b", 2)]


def test_workers_are_told_their_credit_and_what_has_become_of_it() -> None:
    server = Transcript.seeded(receive_bytes=2 * VECTOR_BYTES)
    assert server.push("a", 1).credit == 2 * VECTOR_BYTES
    assert server.hello("b").credit == VECTOR_BYTES
    assert server.push("b", 1).credit == VECTOR_BYTES
    assert server.heartbeat("a").credit == VECTOR_BYTES
    assert server.hello("c").credit == 0
    assert server.push("a", 2).credit == 0
    server.goodbye("c")
    assert server.heartbeat("a").credit == VECTOR_BYTES


def test_who_joins_has_credit_for_one_vector_until_the_first_answer() -> None:
    server = Transcript.seeded(receive_bytes=8 * VECTOR_BYTES)
    assert server.hello("b").credit == VECTOR_BYTES
    assert server.push("b", 1).credit == 4 * VECTOR_BYTES


def test_the_next_in_the_queue_hears_that_it_is_its_turn_when_a_push_has_come() -> None:
    server = Transcript.seeded(workers=("a", "b"), receive_bytes=VECTOR_BYTES)
    assert server.answer(messages.Room, "a", messages.RoomRequest(request=50, bytes=VECTOR_BYTES)).request == 50
    assert server.say("b", messages.RoomRequest(request=60, bytes=VECTOR_BYTES)) == []
    assert server.heartbeat("b").holding
    server.push("a", 1)
    assert [(send.to, send.message) for send in sends(server.effects)][1:] == [(b"b", messages.Room(request=60))]
    assert not server.heartbeat("b").holding


def test_room_for_more_than_any_push_of_the_run_is_refused() -> None:
    server = Transcript.seeded(receive_bytes=VECTOR_BYTES)
    refused = server.refusal("a", messages.RoomRequest(request=50, bytes=VECTOR_BYTES + 1))
    assert (refused.code, refused.request) == ("wrong_size", 50)
    assert not server.heartbeat("a").holding


def test_a_lease_that_ends_gives_its_room_to_the_next() -> None:
    server = Transcript.seeded(workers=("a", "b"), receive_bytes=VECTOR_BYTES)
    server.say("a", messages.RoomRequest(request=50, bytes=VECTOR_BYTES))
    server.say("b", messages.RoomRequest(request=60, bytes=VECTOR_BYTES))
    server.goodbye("a")
    told = [send.message for send in sends(server.after(0.1))]
    assert messages.Room(request=60) in told
