"""ADJUST at the server: who may, what the peers, the checkpoint and the standby are sent, and what a pause holds."""

from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.messages import Adjusted
from ps_server.machine.parts import Sender
from ps_server.state.effects import SaveCheckpoint
from tests.ps_server.transcripts import EPOCH, Transcript, restored_run, sends

ADMIN = "an admin"


def adjust_of(server: Transcript, settings: dict[str, Any]) -> messages.Adjust:
    return messages.Adjust(request=server.next_request(), settings=settings, by="me")


def adjust(server: Transcript, **settings: Any) -> Adjusted:
    wanted = {name.replace("__", "."): value for name, value in settings.items()}
    return server.answer(Adjusted, ADMIN, adjust_of(server, wanted))


def test_an_adjustment_needs_no_hello_and_the_next_update_has_it(server: Transcript) -> None:
    adjusted = adjust(server, schedule__learning_rate=0.5)
    assert [(one.setting, one.before, one.after, one.by) for one in adjusted.adjustments] == [
        ("schedule.learning_rate", 1.0, 0.5, "me")
    ]
    server.push("a", 1, [2, 2, 2])
    assert server.weights() == [-1, -1, -1]
    status = server.machine.status(now=server.now)
    assert (status.learning_rate, status.settings_version, status.adjustments) == (0.5, 1, adjusted.adjustments)


def test_a_server_that_is_stopped_at_once_saves_an_adjustment(server: Transcript) -> None:
    server.save_and_complete()
    assert not server.machine.has_unsaved
    adjust(server, paused=True)
    assert server.machine.has_unsaved
    server.save_and_complete()
    assert not server.machine.has_unsaved


def test_a_restored_server_writes_checkpoints_as_often_as_it_was_adjusted_to(server: Transcript) -> None:
    adjust(server, checkpoint_seconds=5)
    assert server.machine.status(now=server.now).checkpoint_seconds == 5.0
    checkpoint = server.save_and_complete()
    again = Transcript(restored_run(checkpoint.vectors, checkpoint.record, epoch=EPOCH + 1), epoch=EPOCH + 1)
    again.hello("a")
    again.push("a", 1)
    assert not [effect for effect in again.after(4.9) if isinstance(effect, SaveCheckpoint)]
    assert [effect for effect in again.after(0.2) if isinstance(effect, SaveCheckpoint)]


def test_a_key_that_is_no_admins_adjusts_nothing(server: Transcript) -> None:
    message = adjust_of(server, {"paused": True})
    effects = server.machine.receive(b"a", message, now=server.now, sender=Sender(key="k" * 40, is_admin=False))
    (send,) = sends(effects)
    assert isinstance(send.message, messages.Refused)
    assert (send.message.code, "adjusting" in send.message.reason) == ("not_admin", True)
    assert not server.machine.status(now=server.now).paused


# -- workers ----------------------------------------------------------------------------------------------------------


def test_every_reply_names_the_version_of_the_settings(server: Transcript) -> None:
    assert (server.push("a", 1).settings_version, server.heartbeat("a").settings_version) == (0, 0)
    adjust(server, algorithm__entropy_weight=0.5, paused=False)
    assert (server.push("a", 2).settings_version, server.heartbeat("a").settings_version) == (1, 1)
    run = server.answer(messages.RunReply, "a", messages.RunRequest(request=server.next_request()))
    assert run.settings_version == 1
    algorithm: Any = run.run["algorithm"]
    assert algorithm["entropy_weight"] == 0.5
    assert server.hello("b").settings_version == 1


# -- pause ------------------------------------------------------------------------------------------------------------


def test_pushes_wait_while_the_run_is_paused_and_are_settled_when_it_goes_on(server: Transcript) -> None:
    server.push("a", 1)
    adjust(server, paused=True)
    assert sends(server.say("a", server.push_of(2), [b"\0" * 12])) == []
    assert server.heartbeat("a").waiting
    server.after(60.0)
    assert server.machine.version == 2
    effects = server.machine.receive(ADMIN.encode(), adjust_of(server, {"paused": False}), now=server.now)
    server.applied.append(("a", 2))
    server.applied_steps += 20
    settled = [send.message.settlement for send in sends(effects) if isinstance(send.message, messages.Settled)]
    assert [(one.sequence, one.verdict) for one in settled] == [(2, "applied")]
