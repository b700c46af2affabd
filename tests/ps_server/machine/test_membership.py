"""Leases, with time that is only a number."""

from typing import Any

import pytest

from ps_common.protocol.messages import Hello, Settlement
from ps_server.machine import membership
from ps_server.machine.membership import Membership

LEASE_SECONDS = 5.0


@pytest.fixture
def members() -> Membership:
    return Membership(LEASE_SECONDS, now=50)


def join(members: Membership, worker: str, peer: bytes, *, now: float, incarnation: int = 1, **fields: Any) -> bool:
    hello = Hello(request=1, worker_id=worker, secret=16 * "s", incarnation=incarnation, protocols=(1, 1), **fields)
    return members.join(hello, peer, number=len(members.all()), now=now)


def alive(members: Membership) -> list[str]:
    found = sorted(member.worker_id for member in members.alive())
    assert found == sorted(member.worker_id for member in members.all() if member.alive)
    return found


def remembered(members: Membership) -> list[str]:
    return [member.worker_id for member in members.all()]


def test_a_lease_ends_after_silence_longer_than_itself(members: Membership) -> None:
    join(members, "a", b"1", now=100)
    join(members, "b", b"2", now=103)
    assert members.expire(now=105) == []
    assert [member.worker_id for member in members.expire(now=105.1)] == ["a"]
    assert alive(members) == ["b"]


def test_a_worker_whose_lease_has_ended_is_alive_again_with_its_next_message(members: Membership) -> None:
    join(members, "a", b"1", now=100)
    members.expire(now=110)
    member = members.heard_from(b"1", now=111)
    assert member is not None
    assert member.worker_id == "a"
    assert alive(members) == ["a"]
    assert members.expire(now=116) == [], "its lease runs from when it spoke"
    assert members.expire(now=116.1) == [member]


def test_the_same_incarnation_on_another_connection_is_the_same_member(members: Membership) -> None:
    join(members, "a", b"1", now=100)
    before = members.alive()[0]
    before.push_settled(Settlement(sequence=1, verdict="applied", version=2), steps=20)
    assert join(members, "a", b"2", now=101)
    assert members.heard_from(b"2", now=102) is before
    assert (before.peer, before.pushes, before.steps) == (b"2", 1, 20)
    assert remembered(members) == ["a"]


def test_a_newer_incarnation_is_a_new_member_in_the_place_of_the_old(members: Membership) -> None:
    join(members, "a", b"1", now=100)
    members.alive()[0].push_settled(Settlement(sequence=1, verdict="applied", version=2), steps=20)
    assert not join(members, "a", b"2", now=101, incarnation=2)
    (member,) = members.all()
    assert (member.incarnation, member.peer, member.pushes) == (2, b"2", 0)
    assert members.heard_from(b"1", now=102) is None


def test_a_connection_belongs_to_the_last_worker_that_sent_hello_on_it(members: Membership) -> None:
    join(members, "a", b"1", now=100)
    join(members, "b", b"1", now=101)
    member = members.heard_from(b"1", now=102)
    assert member is not None
    assert member.worker_id == "b"
    assert remembered(members) == ["b"]


# -- the bound on what is remembered ----------------------------------------------------------------------------------


@pytest.fixture
def three_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MAX_MEMBERS", 3)


@pytest.mark.usefixtures("three_at_most")
def test_the_dead_are_forgotten_first_the_longest_silent_of_them(members: Membership) -> None:
    for number, worker in enumerate("abc"):
        join(members, worker, worker.encode(), now=100 + number)
    members.leave(members.all()[2])
    members.leave(members.all()[1])
    join(members, "d", b"d", now=110)
    assert sorted(remembered(members)) == ["a", "c", "d"]
    join(members, "e", b"e", now=111)
    assert sorted(remembered(members)) == ["a", "d", "e"]
    assert members.heard_from(b"b", now=112) is None
