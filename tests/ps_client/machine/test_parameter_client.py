"""The worker's machine on a good network: joining, calls and their replies, heartbeats, and the end of the run."""

from math import inf

import pytest

from ps_client.machine.effects import Fail, Phase, Resolve, Transmit
from ps_client.machine.parameter_client import Call, ParameterClient
from ps_client.machine.patience import TIMEOUT_SECONDS
from ps_common.errors import RequestRefused, RunEnded
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.messages import Episode
from ps_common.release import release
from tests.ps_client.client_transcripts import (
    LEASE_SECONDS,
    PATIENCE_SECONDS,
    SCHEMA,
    alive,
    failure,
    join,
    joined_client,
    kinds,
    new_client,
    push,
    resolved,
    sent,
    unknown_worker,
    vector,
    weights,
    welcome,
)
from tests.rows import row


def every_call(client: ParameterClient, *, now: float) -> list[Call]:
    return [
        client.seed(SCHEMA, "float32", vector(0, 0), now=now),
        client.pull(have_epoch=0, have_version=0, now=now),
        client.push("float32", vector(1, 1), epoch=1, computed_on=1, steps=20, now=now),
        client.push("float32", vector(1, 1), epoch=1, computed_on=1, steps=20, now=now, weight_codec="float32"),
        client.report([], {}, now=now),
    ]


def test_hello_names_the_worker_and_its_overrides() -> None:
    client = new_client(overrides={"algorithm.unroll_length": 5})
    assert sent(client.tick(now=0.0)) == [
        messages.Hello(
            request=1,
            worker_id="w",
            secret="0123456789abcdef",
            protocols=(1, 1),
            codecs=CODEC_NAMES,
            host="here",
            environments=8,
            overrides={"algorithm.unroll_length": 5},
            proposed_run={"preset": "proposed"},
            release=release(),
        )
    ]
    assert repr(client) == "<ParameterClient joining pushes=0 outstanding=0>"


def test_calls_wait_until_it_has_joined_and_then_go_in_order() -> None:
    client = new_client()
    calls = every_call(client, now=0.0)
    assert [effects for _, effects in calls] == [[]] * 5
    effects = join(client)
    assert kinds(effects)[1:] == [messages.Seed, messages.Pull, messages.Push, messages.Push, messages.Report]
    assert [message.request for message in sent(effects)] == [ticket for ticket, _ in calls]


def test_a_refused_call_fails_and_the_others_go_on() -> None:
    client = joined_client()
    refused, _ = client.pull(have_epoch=0, have_version=0, now=0.0)
    other, _ = client.report([], {}, now=0.0)
    fail = failure(client.receive(messages.Refused(request=refused, code="unknown_codec", reason="no"), now=0.1))
    assert fail.ticket == refused
    assert isinstance(fail.error, RequestRefused)
    assert (fail.error.code, fail.error.reason) == ("unknown_codec", "no")
    assert resolved(client.receive(messages.Noted(request=other, sequence=1), now=0.1)) == [other]


def test_a_worker_whose_messages_cannot_be_read_gives_up() -> None:
    """An older server cannot read the HELLO of a newer worker, and cannot name the request."""
    client = new_client()
    client.tick(now=0.0)
    refusal = messages.Refused(
        request=0, code="bad_message", reason="bad header: unknown field `shoe_size` (at ps-rl 0.2.0)"
    )
    fail = failure(client.receive(refusal, now=0.1))
    assert fail.ticket == 0
    assert "shoe_size" in str(fail.error)
    assert release() in str(fail.error), "both releases are named"
    assert "0.2.0" in str(fail.error)


@pytest.mark.parametrize(("lease_seconds", "pause"), [(LEASE_SECONDS, 1.0), (2.0, 0.4), (100.0, TIMEOUT_SECONDS / 5)])
def test_heartbeats_keep_the_lease_and_the_connection_alive(lease_seconds: float, pause: float) -> None:
    """Five times a lease. With a long lease the link timeout must not expire for want of messages."""
    client = joined_client(lease_seconds=lease_seconds)
    for number in range(1, 30):
        now = client.next_tick()
        assert now == pytest.approx(number * pause)
        (heartbeat,) = sent(client.tick(now=now))
        assert isinstance(heartbeat, messages.Heartbeat)
        assert client.receive(alive(heartbeat.request), now=now) == [], "no call waits for it"


def test_stop_ends_every_call_now_and_later() -> None:
    client = joined_client()
    push(client, 1, 1)
    fail = failure(client.receive(messages.Stop(reason="the target is reached"), now=1.0))
    assert fail.ticket == 0
    assert isinstance(fail.error, RunEnded)
    assert str(fail.error) == "the target is reached"
    assert client.phase is Phase.OVER
    *others, (_, report) = every_call(client, now=2.0)
    assert [effects for _, effects in others] == [[Fail(ticket, fail.error)] for ticket, _ in others]
    assert kinds(report) == [messages.Report]
    assert client.receive(messages.Stop(reason="again"), now=2.0) == []
    assert client.receive(welcome(1), now=2.0) == []
    assert client.tick(now=30.0) == client.tick(now=1000.0) == []
    assert client.phase is Phase.OVER


@pytest.mark.parametrize("code", ["unknown_worker", "outside_window"])
def test_a_worker_ends_when_replies_come_and_no_request_is_fulfilled(code: str) -> None:
    """Heartbeats and HELLO have their replies all the time. A push that is settled begins the patience anew."""
    client, now = joined_client(), 0.0

    def refuse_for(seconds: float, refused: int) -> None:
        nonlocal now
        until = now + seconds
        while now < until and client.error is None:
            now += 0.5
            client.receive(messages.Refused(request=refused, code=code, reason="not in the ledger"), now=now)
            due = [effect.message for effect in client.tick(now=now) if isinstance(effect, Transmit)]
            for message in due:
                hello = isinstance(message, messages.Hello)
                client.receive(welcome(message.request) if hello else alive(message.request), now=now)

    first, _ = push(client, 1, 1)
    refuse_for(PATIENCE_SECONDS - 5, first)
    client.receive(weights(first), vector(1, 1), now=now)
    second, _ = push(client, 1, 1)
    refuse_for(PATIENCE_SECONDS - 5, second)
    assert client.error is None
    refuse_for(15, second)
    assert f"refused ({code}): not in the ledger" in str(client.error)


def test_a_worker_of_a_paused_run_outlives_one_refusal() -> None:
    """Its push has no reply while the run is paused; a server that was started again has refused it once."""
    client, now = joined_client(), 0.0
    waiting, _ = push(client, 1, 1)
    client.receive(unknown_worker(waiting), now=now)
    while now < 3 * PATIENCE_SECONDS:
        now += 0.5
        for message in sent(client.tick(now=now)):
            hello = isinstance(message, messages.Hello)
            client.receive(welcome(message.request) if hello else alive(message.request), now=now)
    assert client.error is None


def test_after_goodbye_nothing_is_sent_that_would_begin_the_lease_again() -> None:
    """No heartbeat and no HELLO is due any more, and what a reply shows to be lost is not sent again."""
    for name, client in {"joining": new_client(), "joined": joined_client()}.items():
        with row(name):
            client.tick(now=0.0)
            lost = push(client, 1, 1)[0] if name == "joined" else 0
            ticket, _ = client.leave("done", now=0.1)
            assert [client.tick(now=now / 10) for now in range(1, 200)] == 199 * [[]]
            assert client.next_tick() == inf
            refused = messages.Refused(request=lost, code="unknown_worker", reason="?")
            assert sent(client.receive(refused, now=20.0)) == []
            assert client.receive(messages.Refused(request=0, code="standby", reason="?"), now=20.0) == []
            assert kinds(client.receive(messages.Farewell(request=ticket), now=20.1)) == [Resolve]


def test_the_last_games_are_reported_even_when_the_run_is_over_and_never_when_the_worker_was_refused() -> None:
    games = [Episode(3.0, 9, global_steps=90)]
    client = joined_client()
    client.receive(messages.Stop(reason="over"), now=1.0)
    ticket, effects = client.report(games, {}, now=2.0)
    assert sent(effects) == [messages.Report(request=ticket, sequence=1, episodes=tuple(games))]
    assert resolved(client.receive(messages.Noted(request=ticket, sequence=1), now=2.1)) == [ticket]
    refused = joined_client()
    refused.receive(messages.Refused(request=0, code="bad_message", reason="no"), now=1.0)
    assert isinstance(failure(refused.report(games, {}, now=2.0)[1]).error, RequestRefused)
