"""The worker's machine and faults: losses, a server that does not know the worker or was restored, silence."""

from typing import Any

import pytest

from ps_client.machine.effects import Effect, Fail, Phase, Reconnect, Transmit
from ps_client.machine.parameter_client import ParameterClient
from ps_client.machine.patience import TIMEOUT_SECONDS
from ps_common.errors import SchemaMismatch, ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.lineage import Shard
from tests.ps_client.client_transcripts import (
    PATIENCE_SECONDS,
    RESEND_BYTES,
    RUN,
    SCHEMA,
    failure,
    hello_of,
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

# -- losses -----------------------------------------------------------------------------------------------------------


def test_a_later_reply_proves_a_loss_and_the_request_is_sent_again_as_it_was() -> None:
    client = joined_client()
    lost, [pushed] = push(client, 1, 2)
    later, _ = client.report([], {}, now=0.0)
    effects = client.receive(messages.Noted(request=later, sequence=1), now=0.1)
    assert effects[0] == pushed
    assert resolved(effects) == [later]
    assert resolved(client.receive(weights(lost), vector(1, 2), now=0.2)) == [lost]


# -- a server that does not know the worker --------------------------------------------------------------------------


def test_a_worker_that_the_server_does_not_know_joins_again_and_resends_what_has_no_reply() -> None:
    client = joined_client()
    first, [pushed] = push(client, 1, 2)
    _, [reported] = client.report([], {}, now=0.0)
    (heartbeat,) = sent(client.tick(now=1.0))
    assert kinds(client.receive(unknown_worker(first), now=1.1)) == []
    assert kinds(client.receive(unknown_worker(heartbeat.request), now=1.1)) == []
    assert client.phase is Phase.JOINING
    assert client.next_tick() <= 1.1
    assert join(client, now=1.2, schema=SCHEMA.specs) == [pushed, reported]


def test_hello_names_the_oldest_push_that_may_still_come() -> None:
    client = joined_client(resend_bytes=0)
    for version in (2, 3):
        ticket, _ = push(client, 1, 2)
        client.receive(weights(ticket, version=version), vector(1, 2), now=0.0)
    push(client, 1, 2)
    push(client, 1, 2)
    client.receive(unknown_worker(7), now=1.0)
    assert hello_of(client.tick(now=1.0)).oldest == 3
    nothing_in_flight = client_with_weights(5, 6, resend_bytes=0)
    nothing_in_flight.receive(unknown_worker(7), now=1.0)
    assert hello_of(nothing_in_flight.tick(now=1.0)).oldest == 2


# -- a restored server ------------------------------------------------------------------------------------------------


def client_with_weights(*values: float, resend_bytes: int = RESEND_BYTES) -> ParameterClient:
    """A client that has seeded the run with zeros, and has pulled these weights."""
    client = joined_client(resend_bytes=resend_bytes)
    ticket, _ = push(client, 1, 2)
    client.receive(weights(ticket), vector(*values), now=0.0)
    return client


def rejoin(client: ParameterClient, **changes: Any) -> list[Effect]:
    client.receive(unknown_worker(99), now=1.0)
    return join(client, now=1.0, epoch=2, **changes)


def test_an_empty_restored_server_gets_the_first_weights_and_all_pushes_again() -> None:
    client = client_with_weights(5, 6)
    push(client, 3, 4)
    seed, first, second = rejoin(client)
    assert seed == Transmit(messages.Seed(request=0, schema=SCHEMA.specs), vector(0, 0))
    assert isinstance(first, Transmit)
    assert isinstance(second, Transmit)
    assert isinstance(first.message, messages.Push)
    assert isinstance(second.message, messages.Push)
    assert (first.message.sequence, second.message.sequence) == (1, 2)
    assert client.receive(messages.Seeded(request=0, accepted=True, version=1), now=1.1) == []


def test_a_server_of_another_run_gets_nothing() -> None:
    client = client_with_weights(5, 6)
    client.receive(unknown_worker(99), now=1.0)
    assert join(client, now=1.0, epoch=2, run_id="another") == []
    assert client.phase is Phase.JOINING


def test_a_restored_server_with_other_settings_is_left() -> None:
    for section, setting, flag in [
        ("environment", "id", "--environment"),
        ("environment", "envs", "--envs"),
        ("algorithm", "unroll_length", "--unroll-length"),
        ("network", "hidden", "--hidden"),
        ("wire", "gradient_codec", "--gradient-codec"),
    ]:
        with row(section, setting, flag):
            client = joined_client()
            push(client, 1, 2)
            fail = failure(
                rejoin(client, schema=SCHEMA.specs, run=RUN | {section: RUN.get(section, {}) | {setting: "another"}})
            )
            assert fail.ticket == 0
            assert isinstance(fail.error, SchemaMismatch)
            assert f"the server came back with another {flag}, " in str(fail.error)
            assert client.phase is Phase.OVER


# -- silence ----------------------------------------------------------------------------------------------------------


def quiet_until(client: ParameterClient, end: float, *, start: float = 0.0) -> list[tuple[float, Effect]]:
    """Effects and their times while nothing arrives, at twenty ticks a second."""
    done = []
    for tick in range(round((end - start) * 20) + 1):
        now = start + tick / 20
        done += [(now, effect) for effect in client.tick(now=now)]
    return done


def first(done: list[tuple[float, Effect]], kind: type) -> float:
    return next(now for now, effect in done if isinstance(effect, kind))


def test_a_silent_connection_is_replaced_and_the_worker_joins_again() -> None:
    client = joined_client()
    _, [pushed] = push(client, 1, 2)
    done = quiet_until(client, 6)
    at = first(done, Reconnect)
    assert at == pytest.approx(TIMEOUT_SECONDS, abs=0.1)
    same_moment = [effect for now, effect in done if now == at]
    assert kinds(same_moment) == [Reconnect, messages.Hello]
    assert sum(isinstance(effect, Reconnect) for _, effect in done) == 1, "the new connection has its own time"
    hello = hello_of(same_moment)
    assert client.receive(welcome(hello.request, schema=SCHEMA.specs), now=6.0) == [pushed]


def test_large_vectors_in_flight_prolong_the_link_timeout() -> None:
    """10 MB at 1 MB a second."""
    client = joined_client()
    gradient = [memoryview(bytes(10_000_000))]
    client.push("float32", gradient, epoch=1, computed_on=1, steps=1, now=0.0, weight_codec="float32")
    assert first(quiet_until(client, 20), Reconnect) == pytest.approx(TIMEOUT_SECONDS + 10, abs=0.1)


def test_patience_ends_with_a_sentence() -> None:
    client = joined_client()
    push(client, 1, 2)
    done = quiet_until(client, PATIENCE_SECONDS + 1)
    now, fail = done[-1]
    assert now == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    assert isinstance(fail, Fail)
    assert fail.ticket == 0
    assert isinstance(fail.error, ServerUnreachable)
    assert str(fail.error) == "no reply for 60 s; is it running, are --server and keys right?"
    assert push(client, 1, 2)[1] == [Fail(push(client, 1, 2)[0] - 1, fail.error)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_server_that_is_not_the_shard_that_its_address_says_is_named(number: int) -> None:
    """Settings are not compared, but another range of the weights would be taken for this one."""
    client = new_client(shard=Shard(number=2, addresses=("a:1", "b:2")))
    join(client, shard=Shard(number=number, addresses=("b:2", "a:1")))
    why = (
        "the server at b:2, which shard 1 names as shard 2/2, is shard 1/2: all servers of a run take the same --shards"
    )
    assert (str(client.error) == f"{why}, in the same order") == (number == 1)


def test_a_server_that_comes_back_as_another_shard_is_left() -> None:
    client = joined_client(shard=Shard(number=2, addresses=("a:1", "b:2")))
    client.receive(unknown_worker(9), now=1.0)
    join(client, now=1.1, shard=Shard(number=1, addresses=("a:1", "b:2")))
    assert "the server came back as shard 1/2 of the run, and was shard 2/2; restart this worker" in str(client.error)
