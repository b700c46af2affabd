"""The standby's side of being dropped: it relies on `durable_through` no more, and sends FOLLOW under a new number."""

import math
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_server.replication.replication import PAUSE_SECONDS
from ps_server.state.effects import SendToServer
from tests.ps_server.standby.test_standby import are_alike, the_run
from tests.ps_server.standby_transcripts import PRIMARY, TICK_SECONDS, WithStandby
from tests.ps_server.transcripts import notes, only


def told_that_it_fell_behind(server: WithStandby, request: int) -> list[Any]:
    message = messages.Refused(request=request, code="fell_behind", reason="too slow")
    return server.standby.receive_from_primary(message, now=server.now)


def next_follow(server: WithStandby) -> messages.Follow:
    server.now += TICK_SECONDS
    message = only(SendToServer, server.standby.tick(now=server.now)).message
    assert isinstance(message, messages.Follow)
    return message


def test_a_standby_that_was_dropped_says_so_and_asks_again_under_a_new_number() -> None:
    server = WithStandby.following()
    (note,) = notes(told_that_it_fell_behind(server, request=1))
    assert note == f"not in sync with {PRIMARY} any more: too slow"
    asked = next_follow(server)
    assert asked.request > 1
    assert next_follow(server).request == asked.request
    assert told_that_it_fell_behind(server, request=asked.request) == [], "the log has it already"
    assert next_follow(server).request > asked.request, "a state may be under way that was sent under the old number"


def test_a_standby_that_is_dropped_during_its_state_transfer_comes_back_in_sync() -> None:
    server = WithStandby.following()
    server.to_standby(server.machine.replication.rolled_back())
    server.pass_time(1.0)
    replication = server.machine.replication
    assert replication.followed < math.inf
    server.is_cut = True
    server.push("a", 1)
    server.save_and_complete()
    server.now += 3.75
    server.heartbeat("a", save_soon=True)
    server.is_cut = False
    server.pass_time(1.0)
    status = replication.status(now=server.now)
    assert status is not None
    assert status.phase == "dropped"
    server.pass_time(PAUSE_SECONDS + 1.0)
    status = replication.status(now=server.now)
    assert status is not None
    assert (status.phase, status.lag_updates) == ("in sync", 0)
    assert are_alike(the_run(server), server.run, now=server.now)


@pytest.mark.parametrize("code", ["not_following", "fell_behind"])
def test_a_late_refusal_of_a_place_that_was_lost_changes_nothing(code: str) -> None:
    server = WithStandby.following()
    server.to_standby(server.machine.replication.rolled_back())
    server.pass_time(2.0)
    before = server.standby.following
    state, promise, position = before.state, before.promise.through, before.position
    assert before.holds_every_durable_push(at=server.now)
    late = messages.Refused(request=1, code=code, reason="it was sent before the run came again")
    assert server.standby.receive_from_primary(late, now=server.now) == []
    assert (before.state, before.promise.through, before.position) == (state, promise, position)
    assert before.holds_every_durable_push(at=server.now)
