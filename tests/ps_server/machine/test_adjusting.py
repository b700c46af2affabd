"""ADJUST at the server: who may, what the peers, the checkpoint and the standby are sent, and what a pause holds."""

import re
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import Adjusted
from ps_server.machine.parts import Sender
from ps_server.state.effects import LogLine, SaveCheckpoint
from tests.ps_server.transcripts import EPOCH, Transcript, notes, only, restored_run, sends

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


def test_an_adjustment_is_noted_and_saved_soon(server: Transcript) -> None:
    adjust(server, schedule__learning_rate=0.5, budget__until_return=None)
    assert notes(server.effects) == ["me has set schedule.learning_rate from 1 to 0.5"]
    checkpoint = only(SaveCheckpoint, server.after(0.3))
    assert restored_run(checkpoint.vectors, checkpoint.record, epoch=EPOCH + 1).learning_rate == 0.5


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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"schedule.learning_rate": float("nan")}, "schedule.learning_rate: nan is not allowed"),
        ({"schedule.learning_rate": -1.0, "paused": True}, "it may be a number from 0 to 1e\\+12"),
        ({"paused": True, "environment.envs": 3}, "environment.envs: cannot be adjusted"),
        ({"algorithm.final_epsilon": 0.1}, "algorithm.final_epsilon: a3c has none that can be adjusted"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused_and_nothing_is_changed(
    server: Transcript, settings: dict[str, Any], named: str
) -> None:
    refused = server.refusal(ADMIN, adjust_of(server, settings))
    assert refused.code == "bad_setting"
    assert re.search(named, refused.reason)
    status = server.machine.status(now=server.now)
    assert (status.paused, status.learning_rate, status.settings_version) == (False, 1.0, 0)


def test_a_key_that_is_no_admins_adjusts_nothing(server: Transcript) -> None:
    message = adjust_of(server, {"paused": True})
    effects = server.machine.receive(b"a", message, now=server.now, sender=Sender(key="k" * 40, is_admin=False))
    (send,) = sends(effects)
    assert isinstance(send.message, messages.Refused)
    assert (send.message.code, "adjusting" in send.message.reason) == ("not_admin", True)
    assert not server.machine.status(now=server.now).paused


def test_the_history_names_the_key_of_an_admin(server: Transcript) -> None:
    sender = Sender(key="abcdefghij" * 4, is_admin=True)
    server.machine.receive(b"x", adjust_of(server, {"paused": True}), now=server.now, sender=sender)
    assert server.run.adjustments.history[0].by == "me (key abcdefgh...)"


def test_a_server_without_a_run_has_nothing_to_adjust() -> None:
    server = Transcript()
    assert server.refusal(ADMIN, adjust_of(server, {"paused": True})).code == "no_weights"


def test_a_run_that_is_over_is_not_adjusted(server: Transcript) -> None:
    server.answer(messages.Stopping, ADMIN, messages.StopRequest(request=server.next_request()))
    server.answer(messages.Stop, ADMIN, adjust_of(server, {"paused": True}))


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


def test_a_worker_whose_own_flag_was_adjusted_may_come_back(server: Transcript) -> None:
    overrides = {"algorithm.entropy_weight": 0.01, "algorithm.unroll_length": 20}
    server.hello("b", overrides=overrides)
    adjust(server, algorithm__entropy_weight=0.5)
    server.hello("b", overrides=overrides, incarnation=1)
    server.hello("c", overrides=overrides)
    refused = server.refusal("d", server.hello_of("d", overrides={"algorithm.unroll_length": 5}))
    assert refused.code == "contradiction"


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


def test_a_paused_run_is_saved_and_ended(server: Transcript) -> None:
    adjust(server, paused=True)
    assert server.save_and_complete().record.adjustments.paused
    server.answer(messages.Stopping, ADMIN, messages.StopRequest(request=server.next_request()))
    assert server.machine.phase.value == "draining"


def test_a_paused_run_does_not_reach_its_minutes() -> None:
    server = Transcript.seeded(budget={"max_minutes": 1.0})
    adjust(server, paused=True)
    server.after(3600.0)
    assert server.machine.phase.value == "serving"
    adjust(server, paused=False)
    server.hello("a")
    server.after(61.0)
    assert server.machine.phase.value == "draining"


def test_settings_that_have_their_value_change_nothing(server: Transcript) -> None:
    assert adjust(server, paused=False, schedule__learning_rate=1.0).adjustments == ()
    assert not [effect for effect in server.effects if isinstance(effect, LogLine)]
