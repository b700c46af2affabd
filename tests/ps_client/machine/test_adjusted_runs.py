"""The worker's machine when settings of the run were adjusted: it asks for them, once, however often it is told."""

from typing import Any

import msgspec

from ps_client.machine.effects import Phase
from ps_common.protocol import messages
from tests.ps_client.client_transcripts import (
    RUN,
    join,
    joined_client,
    push,
    unknown_worker,
    weights,
)
from tests.rows import row

ADJUSTED: dict[str, Any] = RUN | {"algorithm": {"name": "a3c", "entropy_weight": 0.5}}


def settled(request: int, sequence: int, *, settings: int) -> messages.Weights:
    settlement = messages.Settlement(sequence=sequence, verdict="applied", version=2, settings_version=settings)
    return msgspec.structs.replace(weights(request), settled=settlement)


def run_requests(effects: Any) -> list[messages.RunRequest]:
    return [message for message in sent_of(effects) if isinstance(message, messages.RunRequest)]


def sent_of(effects: Any) -> list[Any]:
    return [effect.message for effect in effects if hasattr(effect, "message")]


def test_a_settlement_with_newer_settings_is_followed_by_a_request_for_them() -> None:
    client = joined_client()
    ticket, _ = push(client, 1, 1)
    (asked,) = run_requests(client.receive(settled(ticket, 1, settings=1), now=0.1))
    ticket, _ = push(client, 1, 1)
    again = client.receive(settled(ticket, 2, settings=1), now=0.2)
    assert len(run_requests(again)) == 1, "the reply to a later request proves the first lost"
    assert client.adjusted_run is None
    client.receive(messages.RunReply(request=asked.request, settings_version=1, run=ADJUSTED), now=0.3)
    assert client.adjusted_run == ADJUSTED
    ticket, _ = push(client, 1, 1)
    assert run_requests(client.receive(settled(ticket, 3, settings=1), now=0.4)) == []


def test_a_worker_is_told_to_leave_by_run_or_by_welcome_and_may_stay_after_all() -> None:
    client = joined_client()
    for settings, drained in ((1, True), (2, False)):
        ticket, _ = push(client, 1, 1)
        (asked,) = run_requests(client.receive(settled(ticket, settings, settings=settings), now=0.1))
        reply = messages.RunReply(request=asked.request, settings_version=settings, run=RUN, drained=drained)
        client.receive(reply, now=0.2)
        assert client.is_drained is drained
    ticket, _ = push(client, 1, 1)
    client.receive(unknown_worker(ticket), now=1.0)
    join(client, now=1.0, epoch=2, settings_version=3, drained=True)
    assert client.is_drained


def test_a_server_that_comes_back_with_adjusted_settings_is_gone_on_with() -> None:
    client = joined_client(settings_version=1)
    ticket, _ = push(client, 1, 1)
    client.receive(unknown_worker(ticket), now=1.0)
    join(client, now=1.0, epoch=2, run=ADJUSTED, settings_version=2)
    assert client.phase is Phase.JOINED
    assert client.adjusted_run == ADJUSTED


def test_a_server_that_comes_back_with_other_numbers_of_a_custom_algorithm_is_continued_with() -> None:
    """Its own class decides what it takes; other settings, and those that the server acts on, end the worker."""
    own = {"name": "mine:Method", "unroll_length": 8, "rate": 0.5, "mode": "fast"}
    for changed, phase in (
        ({"rate": 0.25}, Phase.JOINED),
        ({"mode": "slow"}, Phase.OVER),
        ({"unroll_length": 9}, Phase.OVER),
    ):
        with row(changed):
            client = joined_client(run=ADJUSTED | {"algorithm": own})
            ticket, _ = push(client, 1, 1)
            client.receive(unknown_worker(ticket), now=1.0)
            join(client, now=1.0, epoch=2, run=ADJUSTED | {"algorithm": own | changed}, settings_version=2)
            assert client.phase is phase
