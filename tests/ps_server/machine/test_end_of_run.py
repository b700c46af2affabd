"""The end of a run, and the requests of admins, as transcripts."""

from collections.abc import Callable
from pathlib import Path

import pytest

import ps_common
from ps_common.protocol import messages
from ps_common.protocol.messages import Stop
from ps_server.machine.dispatch import REQUESTS
from ps_server.machine.ending import DRAIN_SECONDS, Phase
from ps_server.state.effects import Exit, LogLine, SaveCheckpoint, Send
from tests.ps_server.transcripts import CHECKPOINT_SECONDS, Transcript, encoded, exits, notes, only, received, sends


def stops(server: Transcript) -> dict[bytes, str]:
    """The peers that are told, unasked, that the run is over; and why."""
    unasked = [send for send in sends(server.effects) if isinstance(send.message, Stop) and send.message.request == 0]
    assert len({send.to for send in unasked}) == len(unasked)
    return {send.to: send.message.reason for send in unasked if isinstance(send.message, Stop)}


def stop(server: Transcript, reason: str = "enough") -> messages.Stopping:
    """An admin ends the run."""
    return server.answer(messages.Stopping, "admin", messages.StopRequest(request=1, reason=reason))


@pytest.fixture
def draining(server: Transcript) -> Transcript:
    """The run of "a" and "b" after one update, just ended; its last checkpoint is complete."""
    server.push("a", 1, [1, 2, 3])
    stop(server)
    server.machine.checkpoint_saved("last.safetensors")
    return server


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_budget_of_steps_ends_the_run_with_the_push_that_reaches_it() -> None:
    server = Transcript.seeded(workers=("a", "b"), budget={"max_steps": 60})
    server.push("a", 1, steps=40)
    assert stops(server) == {}
    server.push("b", 1, steps=20)
    assert server.machine.phase is Phase.DRAINING
    assert stops(server) == {b"a": "max_steps 60 reached", b"b": "max_steps 60 reached"}
    assert only(SaveCheckpoint, server.effects).record.version == 3
    assert notes(server.effects) == ["the run is over: max_steps 60 reached"]


def test_a_target_ends_the_run_with_the_report_that_reaches_it() -> None:
    server = Transcript.seeded(budget={"until_return": 18.0})
    server.push("a", 1)
    server.report("a", 1, *[18.0] * 99)
    assert stops(server) == {}
    server.report("a", 2, 18.0)
    assert stops(server) == {b"a": "mean return of the last 100 episodes reached 18"}
    assert only(SaveCheckpoint, server.effects).best


def test_a_budget_of_minutes_ends_the_run_without_any_message() -> None:
    server = Transcript.seeded(budget={"max_minutes": 0.05})
    server.push("a", 1)
    server.after(2.9)
    assert stops(server) == {}
    server.after(0.1)
    assert stops(server) == {b"a": "max_minutes 0.05 reached"}


def test_an_admin_ends_the_run(server: Transcript) -> None:
    server.push("a", 1)
    stop(server, "enough")
    kinds = [type(effect) for effect in server.effects]
    assert kinds == [Send, LogLine, Send, Send, SaveCheckpoint]
    assert stops(server) == {b"a": "enough", b"b": "enough"}


def test_when_the_run_is_over_the_server_exits_as_soon_as_all_workers_have_left(draining: Transcript) -> None:
    assert exits(draining.after(0.25)) == []
    draining.goodbye("a")
    assert exits(draining.after(0.25)) == []
    draining.goodbye("b")
    assert exits(draining.after(0.25)) == [Exit("enough")]


def test_a_worker_that_does_not_leave_delays_the_exit_by_a_few_seconds(draining: Transcript) -> None:
    draining.goodbye("a")
    assert exits(draining.after(DRAIN_SECONDS - 0.1)) == []
    draining.answer(Stop, "b", messages.Heartbeat(request=8))
    assert exits(draining.after(0.1)) == [Exit("enough")]


# -- after the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "say",
    [
        lambda server: server.push_of(2),
        lambda server: server.push_pull_of(2, have=1),
        lambda server: server.hello_of("a"),
        lambda server: messages.Heartbeat(request=server.next_request()),
        lambda server: messages.Seed(request=server.next_request(), schema=()),
    ],
    ids=["push", "push with weights", "hello", "heartbeat", "seed"],
)
@pytest.mark.parametrize("peer", ["a", "nobody"])
def test_whatever_needs_a_running_run_is_answered_by_stop(
    draining: Transcript, say: Callable[[Transcript], messages.ToServer], peer: str
) -> None:
    assert draining.answer(Stop, peer, say(draining), encoded([1, 1, 1])).reason == "enough"
    assert draining.weights() == [-1, -2, -3]


def test_the_protocol_page_lists_what_is_still_answered() -> None:
    page = " ".join((Path(ps_common.__file__).parent.parent / "PROTOCOL.md").read_text().split())
    listed = page.split("the server still answers ")[1].split(" as before")[0].replace(" and", ",").split(", ")
    legal = [kind for kind, row in REQUESTS.items() if Phase.DRAINING in row.phases]
    assert sorted(listed) == sorted(kind.__struct_config__.tag for kind in legal)


def test_after_the_end_the_weights_can_be_read_and_the_last_scores_reported(draining: Transcript) -> None:
    assert received(draining.pull("a")) == [-1, -2, -3]
    draining.report("a", 1, 21.0)
    status = draining.answer(messages.StatusReply, "admin", messages.StatusRequest(request=4)).status
    assert (status.phase, status.mean_return_100) == ("draining", 21.0)


def test_scores_that_come_after_the_last_checkpoint_are_saved_before_the_exit(draining: Transcript) -> None:
    """Workers report their last games when they are told that the run is over, and no weights change any more."""
    assert not draining.machine.has_unsaved
    draining.report("a", 1, 21.0)
    assert draining.machine.has_unsaved
    saved = only(SaveCheckpoint, draining.machine.save(now=draining.now))
    assert saved.record.progress.episodes == 1
    draining.report("a", 2, 20.0)
    draining.machine.checkpoint_saved("last.safetensors")
    assert draining.machine.has_unsaved, "a game that ended while it was written"


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_the_best_hundred_games_so_far_are_saved_before_the_next_checkpoint_is_due(server: Transcript) -> None:
    server.push("a", 1, [1, 2, 3])
    server.report("a", 1, *[21.0] * 100)
    checkpoint = only(SaveCheckpoint, server.after(CHECKPOINT_SECONDS / 6))
    assert checkpoint.best
    server.machine.checkpoint_saved("here.safetensors")
    later = server.after(CHECKPOINT_SECONDS / 2)
    assert [effect for effect in later if isinstance(effect, SaveCheckpoint)] == [], "the mean is no higher than that"


# -- status -----------------------------------------------------------------------------------------------------------
