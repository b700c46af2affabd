"""The worker's machine and a killed server: what is sent again, what is not, and which pushes wait."""

from ps_client.machine.effects import Phase
from ps_client.machine.parameter_client import ParameterClient
from ps_common.protocol import messages
from ps_common.protocol.messages import Settlement
from tests.ps_client.client_transcripts import (
    SCHEMA,
    join,
    joined_client,
    kinds,
    push,
    resolved,
    sent,
    unknown_worker,
    vector,
    weights,
)

ONE_PUSH = 8 + 1024  # bytes


def client_with_replies(count: int, **options: int) -> ParameterClient:
    """A member of a run seeded in epoch 1. So many pushes have their replies, and none is durable."""
    client = joined_client(**options)
    for sequence in range(1, count + 1):
        ticket, _ = push(client, sequence, sequence)
        assert resolved(client.receive(settling(ticket, sequence), vector(0, 0), now=0.0)) == [ticket]
    return client


def settling(ticket: int, sequence: int, *, durable: int = 0, epoch: int = 1) -> messages.Weights:
    settled = Settlement(sequence=sequence, verdict="applied", version=2, durable=durable)
    return messages.Weights(request=ticket, epoch=epoch, version=2, global_steps=0, settled=settled)


def rejoin(
    client: ParameterClient, *, settled_through: int, epoch: int = 2, seeded: bool = True
) -> list[messages.ToServer]:
    client.receive(unknown_worker(99), now=1.0)
    schema = SCHEMA.specs if seeded else ()
    effects = join(client, now=1.0, epoch=epoch, schema=schema, settled_through=settled_through)
    return sent(effects)


def sequences(messages_: list[messages.ToServer]) -> list[int]:
    return [push.sequence for push in messages_ if isinstance(push, messages.Push)]


def test_a_restored_server_is_sent_what_it_lacks_before_newer_pushes() -> None:
    client = client_with_replies(4)
    push(client, 5, 5)
    again = rejoin(client, settled_through=2)
    assert [(one.sequence, one.weight_codec) for one in again if isinstance(one, messages.Push)] == [
        (3, None),
        (4, None),
        (5, "float32"),
    ]


def test_a_push_that_a_server_with_a_shorter_ledger_refused_is_sent_after_those_it_lacks() -> None:
    """On a network that does not keep the order: it was sent before WELCOME, and is received after HELLO."""
    client = client_with_replies(16)
    ticket, _ = push(client, 17, 17)
    assert sequences(rejoin(client, settled_through=0)) == list(range(1, 17))
    refusal = messages.Refused(request=ticket, code="outside_window", reason="push 17 is too far beyond the oldest")
    assert sent(client.receive(refusal, now=1.1)) == []
    settled = Settlement(sequence=1, verdict="applied", version=2)
    reply = messages.Settled(request=ticket - 16, epoch=2, settlement=settled, global_steps=0)
    assert sequences(sent(client.receive(reply, now=1.2))) == [17]


def test_a_reply_of_an_earlier_epoch_settles_nothing() -> None:
    client = client_with_replies(0)
    ticket, _ = push(client, 1, 1)
    rejoin(client, settled_through=0)
    assert client.receive(settling(ticket, 1, epoch=1), vector(9, 9), now=1.1) == []
    assert resolved(client.receive(settling(ticket, 1, epoch=2), vector(0, 0), now=1.2)) == [ticket]


def test_a_reply_of_a_later_epoch_makes_the_worker_join_again() -> None:
    """PULL needs no HELLO: a server may have been restored between two messages."""
    client = client_with_replies(0)
    ticket, _ = client.pull(have_epoch=1, have_version=1, now=0.0)
    assert client.receive(weights(ticket, epoch=2), vector(0, 0), now=0.1) == []
    assert client.phase is Phase.JOINING
    assert kinds(join(client, now=0.1, epoch=2, schema=SCHEMA.specs)) == [messages.Pull]


def test_an_empty_server_is_seeded_and_gets_all_pushes_again() -> None:
    client = client_with_replies(3)
    again = rejoin(client, settled_through=0, seeded=False)
    assert [type(message) for message in again] == [messages.Seed] + 3 * [messages.Push]


def test_a_full_buffer_requests_a_checkpoint_and_the_next_push_waits_for_it() -> None:
    client = client_with_replies(2, resend_bytes=2 * ONE_PUSH)
    ticket, effects = push(client, 3, 3)
    assert effects == []
    (heartbeat,) = sent(client.tick(now=0.0))
    assert heartbeat == messages.Heartbeat(request=heartbeat.request, save_soon=True)
    assert client.next_tick() == 0.25
    assert client.tick(now=0.2) == []
    (heartbeat,) = sent(client.tick(now=0.25))
    effects = client.receive(alive_with(heartbeat.request, durable=1), now=0.3)
    assert sequences(sent(effects)) == [3]
    assert resolved(client.receive(settling(ticket, 3), vector(0, 0), now=0.3)) == [ticket]


def alive_with(request: int, *, durable: int = 0, saving: bool = True) -> messages.Alive:
    return messages.Alive(request=request, epoch=1, version=1, global_steps=0, durable=durable, saving=saving)
