"""Weights with NaN or infinity: the run goes back to its newest verified checkpoint, with a warning, and goes on."""

from typing import Any

import pytest
import torch

from ps_common.protocol import messages
from ps_server.machine.ending import Phase
from ps_server.state.effects import LogLine, ReloadCheckpoint, SaveCheckpoint, Send
from ps_server.state.rollback import MOST_RETURNS
from tests.ps_server.standby_transcripts import WithStandby
from tests.ps_server.transcripts import (
    EPOCH,
    Transcript,
    encoded,
    notes,
    only,
    received,
    restored_run,
    sends,
)

# With an ε that is 0 in float32, a gradient of 0 is divided by 0: a sane push ruins the weights.
FRAGILE: dict[str, Any] = {"optimizer": {"name": "rmsprop", "epsilon": 1e-300}, "schedule": {"learning_rate": 1.0}}
RUINOUS = [0.0, 1.0, 1.0]


def roll_back(server: Transcript, checkpoint: SaveCheckpoint, name: str = "checkpoint-1") -> list[Any]:
    """Carries out ReloadCheckpoint as the shell does."""
    return server.machine.reloaded(name, checkpoint.vectors, checkpoint.record, now=server.now)


def ruined(**sections: Any) -> tuple[Transcript, SaveCheckpoint]:
    """A run with target weights and two workers, whose weights were fine at a checkpoint."""
    server = Transcript.seeded(workers=("a", "b"), algorithm={"name": "n_step_q"}, **(FRAGILE | sections))
    checkpoint = server.save_and_complete()
    assert server.push("a", 1, RUINOUS).verdict == "applied"
    server.push("b", 1)
    return server, checkpoint


def test_the_run_goes_on_from_its_newest_sound_checkpoint_and_names_who_pushed() -> None:
    server, checkpoint = ruined()
    assert not torch.isfinite(server.run.weights.flat).all()
    only(ReloadCheckpoint, server.after(0.25))
    told = notes(roll_back(server, checkpoint))
    assert told == [
        "the weights hold NaN or Inf; applied since they were finite: pushes of a (1), b (1). "
        "Going on from checkpoint-1, without the updates since"
    ]
    assert server.weights() == [0, 0, 0]
    assert server.run.weights.is_all_finite()
    assert received(server.pull("a", target=True)) == [0, 0, 0]
    assert server.push("a", 2).verdict == "applied"
    assert server.machine.phase is Phase.SERVING
    assert not any(isinstance(effect, ReloadCheckpoint) for effect in server.after(0.25))


def test_versions_steps_and_ledger_go_on_so_that_nothing_is_applied_again() -> None:
    server, checkpoint = ruined()
    before = server.machine.version
    server.after(0.25)
    roll_back(server, checkpoint)
    assert server.machine.version == before + 1, "no version has two contents"
    assert server.run.weights.target_version == before + 1
    assert server.run.progress.global_steps == 40
    assert server.push("a", 1, RUINOUS).verdict == "duplicate"
    assert server.save_and_complete().record.ledger["a"].through == 1


@pytest.mark.parametrize("is_slot", [True, False])
def test_nothing_that_is_not_finite_is_saved(is_slot: bool) -> None:
    server = Transcript.seeded(**FRAGILE)
    server.push("a", 1)
    (slot,) = server.run.weights.optimizer.slots.values()
    (slot if is_slot else server.run.weights.flat)[1] = float("inf")
    effects = server.machine.save(now=server.now)
    assert not any(isinstance(effect, SaveCheckpoint) for effect in effects)
    only(ReloadCheckpoint, effects)
    assert "hold NaN or Inf" in only(LogLine, effects).text
    assert server.machine.save(now=server.now) == [], "if there is no way back, it is not tried again"


def test_ruined_weights_are_no_failure_of_the_disk() -> None:
    """Workers with a full resend buffer dropped settled pushes, although the disk was fine."""
    server, checkpoint = ruined()
    effects = server.say("admin", messages.CheckpointRequest(request=9))
    only(ReloadCheckpoint, effects)
    refused = only(Send, effects).message
    assert isinstance(refused, messages.Refused)
    assert (refused.code, refused.request) == ("checkpoint_failed", 9)
    assert "hold NaN or Inf" in refused.reason
    assert server.heartbeat("a").saving
    assert (server.machine.checkpoints.failures, server.machine.checkpoints.error) == (0, "")
    assert not server.machine.checkpoints.is_writing
    roll_back(server, checkpoint)
    assert only(SaveCheckpoint, server.after(0.25)).record.ledger["a"].through == 1


def test_the_checkpoints_that_are_written_after_going_back_hide_no_run_that_ruins_its_weights_for_ever() -> None:
    server, checkpoint = ruined()
    for sequence in range(2, 2 + MOST_RETURNS):
        only(ReloadCheckpoint, server.after(0.25))
        roll_back(server, checkpoint, f"checkpoint-{sequence}")
        checkpoint = only(SaveCheckpoint, server.after(0.25))
        server.machine.checkpoint_saved("after going back")
        server.push("a", sequence, RUINOUS)
    only(ReloadCheckpoint, server.after(0.25))
    assert "Going back to checkpoint-2 has not helped" in notes(roll_back(server, checkpoint, "checkpoint-9"))[0]
    assert server.machine.phase is Phase.DRAINING


def test_a_run_that_trains_on_until_another_checkpoint_is_due_has_helped_itself() -> None:
    server, checkpoint = ruined()
    for sequence in range(2, 20, 2):
        only(ReloadCheckpoint, server.after(0.25))
        roll_back(server, checkpoint, f"checkpoint-{sequence}")
        server.after(0.25)
        server.machine.checkpoint_saved("after going back")
        server.push("a", sequence)
        checkpoint = server.save_and_complete()
        server.push("a", sequence + 1)
        server.run.weights.flat[1] = float("nan")
    assert server.machine.phase is Phase.SERVING


def test_after_going_back_a_checkpoint_is_written_at_once_so_that_a_restart_applies_nothing_ruinous_again() -> None:
    server, checkpoint = ruined()
    server.after(0.25)
    roll_back(server, checkpoint)
    saved = only(SaveCheckpoint, server.after(0.25))
    again = Transcript(restored_run(saved.vectors, saved.record, epoch=EPOCH + 1))
    again.hello("a")
    assert again.push("a", 1, RUINOUS).verdict == "duplicate"
    assert again.run.weights.is_all_finite()


def test_weights_ruined_again_and_again_end_the_run_with_the_reason() -> None:
    server, checkpoint = ruined()
    for sequence in range(2, 2 + MOST_RETURNS):
        only(ReloadCheckpoint, server.after(0.25))
        roll_back(server, checkpoint)
        server.push("a", sequence, RUINOUS)
    only(ReloadCheckpoint, server.after(0.25))
    effects = roll_back(server, checkpoint)
    assert server.machine.phase is Phase.DRAINING
    stops = [send.message for send in sends(effects) if isinstance(send.message, messages.Stop)]
    assert len(stops) == 2
    assert "Going back to checkpoint-1 has not helped: take smaller steps" in stops[0].reason


def test_without_a_checkpoint_to_go_back_to_the_run_ends_with_the_reason() -> None:
    server, _ = ruined()
    server.after(0.25)
    effects = server.machine.reload_failed("it has no checkpoints", now=server.now)
    assert server.machine.phase is Phase.DRAINING
    assert "there is nothing to go back to: it has no checkpoints" in notes(effects)[0]


def test_a_standby_asks_for_its_state_again_when_the_run_has_gone_back() -> None:
    server = WithStandby.following(**FRAGILE)
    checkpoint = server.save_and_complete()
    server.push("a", 1, RUINOUS)
    (lost,) = [effect for effect in server.after(0.25) if isinstance(effect, ReloadCheckpoint)]
    assert lost == ReloadCheckpoint()
    server.to_standby(roll_back(server, checkpoint))
    server.pass_time(1.0)
    assert server.standby.run is not None
    assert server.standby.run.weights.flat.tolist() == [0, 0, 0]
    server.push("b", 1)
    assert torch.equal(server.standby.run.weights.flat, server.run.weights.flat)


def test_a_standby_whose_weights_are_ruined_does_not_take_over() -> None:
    """The primary has verified checkpoints, and the standby none."""
    server = WithStandby.following(**FRAGILE)
    server.push("a", 1, RUINOUS)
    server.silence(2.0)
    (refused,) = server.standby.receive(b"w", server.hello_of("a"), encoded([]), now=server.now)[:1]
    assert isinstance(refused, Send)
    assert isinstance(refused.message, messages.Refused)
    assert refused.message.code == "lacking"
    assert "finite weights" in refused.message.reason
