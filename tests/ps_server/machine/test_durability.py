"""No acknowledged push is lost with the server: early checkpoints, and replies that say what is durable."""

from typing import Any

import pytest

from ps_common.protocol import messages
from ps_server.machine.checkpoints import EARLY_SECONDS, STALLED_SECONDS
from ps_server.state.effects import SaveCheckpoint, Send
from ps_server.state.training_run import PUSH_WINDOW
from tests.ps_server.transcripts import (
    EPOCH,
    RUN_ID,
    SCHEMA,
    Transcript,
    a_run,
    encoded,
    only,
    restored_run,
    sends,
)


@pytest.fixture
def server() -> Transcript:
    return Transcript.seeded()


def heartbeat(server: Transcript, worker: str = "a", **fields: Any) -> messages.Alive:
    return server.answer(messages.Alive, worker, messages.Heartbeat(request=server.next_request(), **fields))


def saves(server: Transcript) -> list[SaveCheckpoint]:
    return [effect for effect in server.effects if isinstance(effect, SaveCheckpoint)]


def test_a_run_is_saved_as_soon_as_it_is_seeded() -> None:
    server = Transcript(a_run())
    server.hello("a")
    seed = messages.Seed(request=5, schema=SCHEMA.specs)
    checkpoint = only(SaveCheckpoint, server.say("a", seed, encoded([1, 2, 3])))
    assert checkpoint.vectors["weights"].tolist() == [1, 2, 3]
    server.say("a", seed, encoded([1, 2, 3]))
    assert saves(server) == [], "a second seed is not taken"


def test_a_full_resend_buffer_brings_an_early_checkpoint_and_the_news_that_it_is_complete(server: Transcript) -> None:
    server.push("a", 1)
    server.after(EARLY_SECONDS)
    assert saves(server) == [], "the next is due in half a minute"
    assert heartbeat(server, save_soon=True).durable == 0
    server.after(0.25)
    assert len(saves(server)) == 1
    server.machine.checkpoint_saved("early.safetensors")
    assert heartbeat(server).durable == 1


def test_heartbeats_say_that_checkpoints_fail_and_that_they_succeed_again(server: Transcript) -> None:
    assert heartbeat(server).saving
    server.push("a", 1)
    server.save()
    server.machine.checkpoint_failed("no space left on device")
    assert not heartbeat(server).saving
    assert server.push("a", 2).verdict == "applied", "training goes on"
    server.save_and_complete()
    assert heartbeat(server).saving


def test_a_stalled_disk_stops_no_worker_and_fails_pending_checkpoint_requests(server: Transcript) -> None:
    server.push("a", 1)
    server.say("admin", messages.CheckpointRequest(request=7))
    assert len(saves(server)) == 1
    told: list[Send] = []
    for sequence in range(2, int(STALLED_SECONDS) + 4):
        told += sends(server.after(1))
        assert server.push("a", sequence).verdict == "applied"
    (refused,) = [send.message for send in told if send.to == b"admin"]
    assert isinstance(refused, messages.Refused)
    assert (refused.code, refused.request) == ("checkpoint_failed", 7)
    assert not heartbeat(server).saving, "workers let go of the oldest pushes instead of waiting"
    assert server.refusal("admin", messages.CheckpointRequest(request=8)).code == "checkpoint_failed"
    server.machine.checkpoint_saved("late.safetensors")
    assert heartbeat(server).saving
    assert heartbeat(server).durable == 1


def test_a_gap_that_a_worker_will_never_fill_is_forgotten(server: Transcript) -> None:
    """Of a push that was refused, say."""
    server.push("a", 1)
    server.push("a", 3)
    assert server.run.ledger.accounts["a"].through == 1
    server.push("a", 4, oldest=3)
    assert server.run.ledger.accounts["a"].through == 4
    assert server.push("a", 4 + PUSH_WINDOW).verdict == "applied"
    assert server.push("a", 2).verdict == "duplicate"


def test_replies_and_welcome_tell_the_lives_of_the_server_apart(server: Transcript) -> None:
    push = server.push_of(1)
    assert server.answer(messages.Settled, "a", push, encoded([1, 1, 1])).epoch == EPOCH
    checkpoint = server.save()
    run = restored_run(checkpoint.vectors, checkpoint.record, epoch=EPOCH + 1)
    again = Transcript(run, epoch=EPOCH + 1)
    welcome = again.hello("a")
    assert (welcome.run_id, welcome.epoch) == (RUN_ID, EPOCH + 1)
