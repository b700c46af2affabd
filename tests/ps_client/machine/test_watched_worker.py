"""A worker learns from every reply to a push or a heartbeat whether somebody watches its game."""

import msgspec

from ps_common.protocol.messages import Settlement
from tests.ps_client.client_transcripts import LEASE_SECONDS, alive, joined_client, push, sent, weights


def test_replies_begin_and_end_the_watching() -> None:
    client = joined_client()
    assert not client.is_watched
    for sequence, watched in enumerate((True, True, False), start=1):
        ticket, _ = push(client, 1, 1)
        settlement = Settlement(sequence=sequence, verdict="applied", version=2, watched=watched)
        client.receive(msgspec.structs.replace(weights(ticket), settled=settlement), now=0.1)
        assert client.is_watched == watched


def test_a_worker_that_pushes_nothing_learns_it_from_its_heartbeat() -> None:
    client = joined_client()
    (heartbeat,) = sent(client.tick(now=LEASE_SECONDS))
    client.receive(msgspec.structs.replace(alive(heartbeat.request), watched=True), now=LEASE_SECONDS)
    assert client.is_watched
