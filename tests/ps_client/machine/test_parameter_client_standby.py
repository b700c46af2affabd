"""The worker's machine with two addresses: a primary and its standby."""

import pytest

from ps_client.machine.effects import Effect, Fail, LogLine, Phase, Reconnect
from ps_client.machine.handshake import REFUSED_SECONDS
from ps_client.machine.parameter_client import ParameterClient
from ps_client.machine.patience import TIMEOUT_WITH_STANDBY_SECONDS
from ps_common.errors import ServerUnreachable
from ps_common.protocol import messages
from tests.ps_client.client_transcripts import (
    PATIENCE_SECONDS,
    SCHEMA,
    hello_of,
    join,
    joined_client,
    kinds,
    new_client,
    push,
    sent,
    vector,
    weights,
    welcome,
)


def refused(code: str, request: int = 0) -> messages.Refused:
    return messages.Refused(request=request, code=code, reason=f"because of {code}")


def later(client: ParameterClient, start: float, seconds: float) -> list[tuple[float, Effect]]:
    """Its effects while nothing arrives."""
    times = [start + tick / 20 for tick in range(1, round(seconds * 20) + 1)]
    return [(now, effect) for now in times for effect in client.tick(now=now)]


def test_with_two_addresses_the_link_timeout_is_a_second_and_heartbeats_are_frequent() -> None:
    client = joined_client(addresses=2)
    done = later(client, 0.0, 1.5)
    heartbeats = [now for now, effect in done if kinds([effect]) == [messages.Heartbeat]]
    assert len(heartbeats) >= 4
    (at,) = [now for now, effect in done if isinstance(effect, Reconnect)]
    assert at == pytest.approx(TIMEOUT_WITH_STANDBY_SECONDS, abs=0.1)


def first_reconnect(client: ParameterClient, start: float) -> float:
    now = start
    while Reconnect not in kinds(client.tick(now=now)):
        now += 0.05
    return now - start


def test_large_vectors_prolong_it_by_their_recent_gaps_so_that_a_takeover_is_quick() -> None:
    """10 MB each way: 21 s at the slowest, but they take a tenth of a second here."""
    client = joined_client(addresses=2)
    gradient = [memoryview(bytes(10_000_000))]
    now = 0.0
    for _ in range(60):
        ticket, _ = client.push("float32", gradient, epoch=1, computed_on=1, steps=1, now=now)
        now += 0.1
        client.receive(weights(ticket), gradient, now=now)
    client.push("float32", gradient, epoch=1, computed_on=1, steps=1, now=now)
    assert first_reconnect(client, now) == pytest.approx(TIMEOUT_WITH_STANDBY_SECONDS + 0.1, abs=0.1)


def test_after_a_false_alarm_a_slow_link_is_given_its_time() -> None:
    client = joined_client(addresses=2)
    gradient = [memoryview(bytes(4_000_000))]
    ticket, _ = client.push("float32", gradient, epoch=1, computed_on=1, steps=1, now=0.0)
    client.receive(weights(ticket), vector(1, 2), now=0.1)
    client.push("float32", gradient, epoch=1, computed_on=1, steps=1, now=0.1)
    alarm = 0.1 + first_reconnect(client, 0.1)
    assert alarm < 1.5
    join(client, now=alarm + 0.1, schema=SCHEMA.specs)
    assert first_reconnect(client, alarm + 0.1) == pytest.approx(1.0 + 4.0, abs=0.3)


def turned_away(client: ParameterClient, code: str, *, seconds: float, start: float = 1.0) -> list[Effect]:
    """Each HELLO is refused with this code for a while."""
    done: list[Effect] = []
    for tick in range(round(seconds * 20)):
        now = start + tick / 20
        for effect in client.tick(now=now):
            done.append(effect)
            if isinstance(effect, Reconnect):
                return done
            if kinds([effect]) == [messages.Hello]:
                done += client.receive(refused(code), now=now)
                if isinstance(done[-1], Reconnect):
                    return done
    return done


@pytest.mark.parametrize("code", ["standby", "lacking"])
def test_a_worker_that_a_standby_refuses_retries_soon_and_goes_back_after_a_second(code: str) -> None:
    client = new_client(addresses=2, now=1.0)
    done = turned_away(client, code, seconds=REFUSED_SECONDS + 0.5)
    assert isinstance(done[-1], Reconnect)
    assert kinds(done).count(messages.Hello) > 5
    assert client.phase is Phase.JOINING


def test_a_standby_that_takes_over_meanwhile_is_joined_and_gets_what_it_lacks() -> None:
    client = joined_client(addresses=2)
    ticket, [first] = push(client, 1, 2)
    client.receive(weights(ticket), vector(1, 2), now=0.0)
    assert Reconnect in kinds([effect for _, effect in later(client, 0.0, 1.05)])
    turned_away(client, "standby", seconds=0.5, start=1.1)
    again = join(client, now=1.7, epoch=2, schema=SCHEMA.specs, settled_through=0)
    (resent,) = sent(again)
    assert isinstance(resent, messages.Push)
    assert resent.sequence == 1
    assert first


def test_a_server_of_an_earlier_epoch_is_not_accepted() -> None:
    client = joined_client(addresses=2, epoch=5)
    client.receive(refused("fenced"), now=0.5)
    hello = hello_of(client.tick(now=0.6))
    assert kinds(client.receive(welcome(hello.request, epoch=4, schema=SCHEMA.specs), now=0.7)) == [Reconnect]
    assert client.phase is Phase.JOINING
    assert join(client, now=0.8, epoch=5, schema=SCHEMA.specs) == []
    assert client.phase is Phase.JOINED


def test_patience_ends_though_a_standby_replies_and_the_error_has_its_reason() -> None:
    client = new_client(addresses=2)
    done: list[Effect] = []
    now = 0.0
    while client.phase is not Phase.OVER and now < PATIENCE_SECONDS + 5:
        done += turned_away(client, "lacking", seconds=2, start=now)
        now += 1.1
    (fail,) = [effect for effect in done if isinstance(effect, Fail)]
    assert isinstance(fail.error, ServerUnreachable)
    assert "because of lacking" in str(fail.error)
    assert any("because of lacking" in effect.text for effect in done if isinstance(effect, LogLine))


def meets_a_server_without_weights(client: ParameterClient, *, now: float) -> list[Effect]:
    return client.receive(welcome(hello_of(client.tick(now=now)).request), now=now)


def test_a_new_worker_begins_no_run_before_it_has_tried_the_other_address() -> None:
    """The primary may have been started anew, beside the standby that has the run."""
    client = new_client(addresses=2, now=1.0)
    assert kinds(meets_a_server_without_weights(client, now=1.0)) == [Reconnect]
    assert client.phase is Phase.JOINING
    join(client, now=1.1, schema=SCHEMA.specs)
    assert client.phase is Phase.JOINED


def test_a_worker_that_was_paused_states_how_long_ago_it_was_served_and_asked_nobody_meanwhile() -> None:
    """Its clock stood still for an hour: no standby is promoted for a silence that it slept through."""
    client = joined_client(addresses=2)
    client.tick(now=0.9)
    client.was_away(3600.0, 1.0)
    hello = hello_of([effect for _, effect in later(client, 1.0, 2.0)][-1:])
    assert hello.served_seconds == pytest.approx(3602.0, abs=1.1)
    assert hello.silent_seconds == pytest.approx(2.0, abs=1.1)
    client.receive(welcome(hello.request), now=3.0)
    hello = hello_of([effect for _, effect in later(client, 3.0, 2.0)][-1:])
    assert hello.served_seconds == pytest.approx(2.0, abs=1.1), "the pause was before"
