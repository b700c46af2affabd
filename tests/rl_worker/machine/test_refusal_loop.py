"""A server that answers, and lets nothing happen, ends the worker: with a line in its log first, then with an error."""

from collections.abc import Sequence

import pytest

from common.errors import PsRlError, RequestRefused
from common.protocol import messages
from rl_worker.machine.effects import Effect, Fail, Note, Transmit
from rl_worker.machine.parameter_client import ParameterClient, Phase
from rl_worker.machine.refusal_loop import MOST_DUPLICATES, REFUSED_SECONDS, TOLD_FIRST
from tests.rl_worker.client_transcripts import (
    SCHEMA,
    joined_client,
    push,
    resolved,
    vector,
    welcome,
)

LOOPING = ["unknown_worker", "no_weights", "quarantined", "outside_window"]


def answered(client: ParameterClient, effects: Sequence[Effect], code: str, *, now: float) -> list[Effect]:
    """HELLO is welcome, SEED is taken, and all else is refused."""
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
                refused = messages.Refused(request=message.request, code=code, reason="no")
                done += client.receive(refused, now=now)
    return done


def refuse_all(client: ParameterClient, effects: list[Effect], code: str, *, seconds: float) -> list[Effect]:
    """For so long; what the machine has done beside sending."""
    done: list[Effect] = []
    now = 0.0
    while now < seconds:
        now += 0.25
        effects = answered(client, [*effects, *client.tick(now=now)], code, now=now)
        done += [effect for effect in effects if not isinstance(effect, Transmit)]
    return done


@pytest.mark.parametrize("code", LOOPING)
def test_one_and_the_same_refusal_for_a_minute_is_told_and_ends_the_worker(code: str) -> None:
    client = joined_client()
    _, effects = push(client, 1, 2)
    done = refuse_all(client, effects, code, seconds=2 * REFUSED_SECONDS)
    told, *_, failed = [effect for effect in done if isinstance(effect, Note | Fail)]
    assert isinstance(told, Note)
    assert code in told.text
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, RequestRefused)
    assert failed.error.code == code
    assert "start this worker anew" in str(failed.error)
    assert client.phase is Phase.OVER


@pytest.mark.parametrize("code", LOOPING)
def test_refusals_that_end_after_a_while_end_nothing(code: str) -> None:
    client = joined_client()
    ticket, effects = push(client, 1, 2)
    refuse_all(client, effects, code, seconds=REFUSED_SECONDS / 2)
    if client.phase is Phase.JOINING:
        answered(client, client.tick(now=40.0), code, now=40.0)
    assert client.phase is Phase.JOINED
    settled = messages.Settlement(sequence=1, verdict="applied", version=2)
    weights = messages.Weights(request=ticket, epoch=1, version=2, global_steps=20, settled=settled)
    assert ticket in resolved(client.receive(weights, vector(1, 2), now=40.0))
    _, effects = push(client, 1, 2, now=40.0)
    assert not [one for one in refuse_all(client, effects, code, seconds=REFUSED_SECONDS / 2) if isinstance(one, Fail)]


def settle(client: ParameterClient, verdict: messages.Verdict, sequence: int) -> list[Effect]:
    ticket, _ = push(client, 1, 2)
    settled = messages.Settlement(sequence=sequence, verdict=verdict, version=2)
    answer = messages.NotModified(request=ticket, epoch=1, version=2, global_steps=20, settled=settled)
    return client.receive(answer, now=0.0)


def test_a_worker_all_of_whose_pushes_are_duplicates_is_told_and_ends() -> None:
    client = joined_client()
    for sequence in range(1, MOST_DUPLICATES):
        assert resolved(settle(client, "duplicate", sequence)), "a caller has its answer"
        if sequence == TOLD_FIRST:
            notes = [effect for effect in client.tick(now=0.0) if isinstance(effect, Note)]
            assert "settled them before" in notes[0].text
    (failed,) = settle(client, "duplicate", MOST_DUPLICATES)
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, PsRlError)
    assert "--name" in str(failed.error)


def test_duplicates_among_others_end_nothing() -> None:
    client = joined_client()
    for sequence in range(1, 3 * MOST_DUPLICATES):
        assert resolved(settle(client, "applied" if sequence % 100 == 0 else "duplicate", sequence))
