"""A server that refuses everything for a long time ends the worker: first a line in the log, then an error."""

from collections.abc import Sequence

import pytest

from ps_client.machine.effects import Effect, Fail, LogLine, Phase, Transmit
from ps_client.machine.parameter_client import ParameterClient
from ps_client.machine.patience import REFUSED_SECONDS
from ps_common.errors import RequestRefused
from ps_common.protocol import messages
from tests.ps_client.client_transcripts import (
    SCHEMA,
    joined_client,
    push,
    resolved,
    vector,
    welcome,
)

LOOPING = ["unknown_worker", "no_weights", "outside_window"]


def refused_by_server(client: ParameterClient, effects: Sequence[Effect], code: str, *, now: float) -> list[Effect]:
    """The server accepts HELLO and SEED, and refuses everything else."""
    done: list[Effect] = []
    for effect in effects:
        message = effect.message if isinstance(effect, Transmit) else None
        match message:
            case None:
                done.append(effect)
            case messages.Hello():
                done += client.receive(welcome(message.request, schema=SCHEMA.specs), now=now)
            case messages.Seed():
                done += client.receive(messages.Seeded(request=message.request, accepted=True, version=1), now=now)
            case _:
                refusal = messages.Refused(request=message.request, code=code, reason="no")
                done += client.receive(refusal, now=now)
    return done


def refuse_all(client: ParameterClient, effects: list[Effect], code: str, *, seconds: float) -> list[Effect]:
    """Refuse for so long. Returns the effects other than messages."""
    done: list[Effect] = []
    now = 0.0
    while now < seconds:
        now += 0.25
        effects = refused_by_server(client, [*effects, *client.tick(now=now)], code, now=now)
        done += [effect for effect in effects if not isinstance(effect, Transmit)]
    return done


@pytest.mark.parametrize("code", LOOPING)
def test_the_same_refusal_for_a_minute_is_logged_and_ends_the_worker(code: str) -> None:
    client = joined_client()
    _, effects = push(client, 1, 2)
    done = refuse_all(client, effects, code, seconds=2 * REFUSED_SECONDS)
    note, *_, failed = [effect for effect in done if isinstance(effect, LogLine | Fail)]
    assert isinstance(note, LogLine)
    assert code in note.text
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, RequestRefused)
    assert failed.error.code == code
    assert "restart this worker" in str(failed.error)
    assert client.phase is Phase.OVER


@pytest.mark.parametrize("code", LOOPING)
def test_refusals_that_end_after_a_while_end_nothing(code: str) -> None:
    client = joined_client()
    ticket, effects = push(client, 1, 2)
    refuse_all(client, effects, code, seconds=REFUSED_SECONDS / 2)
    if client.phase is Phase.JOINING:
        refused_by_server(client, client.tick(now=40.0), code, now=40.0)
    assert client.phase is Phase.JOINED
    settled = messages.Settlement(sequence=1, verdict="applied", version=2)
    weights = messages.Weights(request=ticket, epoch=1, version=2, global_steps=20, settled=settled)
    assert ticket in resolved(client.receive(weights, vector(1, 2), now=40.0))
    _, effects = push(client, 1, 2, now=40.0)
    assert not [one for one in refuse_all(client, effects, code, seconds=REFUSED_SECONDS / 2) if isinstance(one, Fail)]
