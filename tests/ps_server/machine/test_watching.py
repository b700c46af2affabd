"""WATCH: frames of one worker's game, for as long as the lease; and how the worker learns that it is watched."""

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import Frame, WatchedFrame, Watching
from ps_server.machine.subscriptions import SUBSCRIPTION_SECONDS
from ps_server.state.effects import Effect
from tests.ps_server.transcripts import Transcript, sends

FRAME = Frame(image=b"a picture", score=3.0, value=0.5, actions=("LEFT", "RIGHT"), probabilities=(0.25, 0.75))


@pytest.fixture
def server() -> Transcript:
    return Transcript.seeded(workers=("a", "b"))


def watch(server: Transcript, worker: str, peer: str = "viewer") -> None:
    reply = server.answer(Watching, peer, messages.Watch(request=server.next_request(), worker_id=worker))
    assert reply.lease_seconds == SUBSCRIPTION_SECONDS


def viewers(effects: list[Effect]) -> list[str]:
    """The peers that are sent the frame; nothing else is sent."""
    assert all(isinstance(send.message, WatchedFrame) for send in sends(effects))
    return [send.to.decode() for send in sends(effects)]


def test_a_frame_goes_to_those_who_watch_that_worker_and_to_no_other(server: Transcript) -> None:
    watch(server, "a", "x")
    watch(server, "a", "y")
    watch(server, "b", "z")
    effects = server.say("a", FRAME)
    assert viewers(effects) == ["x", "y"]
    assert [send.message for send in sends(effects)] == 2 * [WatchedFrame(worker_id="a", frame=FRAME)]


def test_replies_say_whether_the_worker_is_watched(server: Transcript) -> None:
    assert not server.heartbeat("a").watched
    assert not server.push("a", 1).watched
    watch(server, "a")
    assert server.heartbeat("a").watched
    assert server.push("a", 2).watched
    assert not server.heartbeat("b").watched
    server.after(SUBSCRIPTION_SECONDS + 0.1)
    assert not server.heartbeat("a").watched
    assert not server.push("a", 3).watched


def test_a_worker_that_floods_frames_is_slowed_down_by_dropping(server: Transcript) -> None:
    watch(server, "a")
    passed = 0
    for _ in range(1000):  # in two seconds
        server.now += 0.002
        passed += len(server.say("a", FRAME))
    assert 10 <= passed <= 15
