"""SUBSCRIBE: a status a second, events as they happen, and an end to both with the lease."""

import itertools
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import Event, StatusUpdate, Subscribed
from ps_server.machine.subscriptions import MOST_EVENTS, MOST_SUBSCRIBERS, SUBSCRIPTION_SECONDS
from ps_server.state.effects import Effect, LogLine, RecordEvent
from tests.ps_server.transcripts import EPOCH, Transcript, sends


def subscribe(server: Transcript, peer: str = "watcher", **fields: Any) -> list[Event]:
    """The events that a subscriber is sent at once."""
    effects = server.say(peer, messages.Subscribe(request=server.next_request(), **fields))
    subscribed, *events = [send.message for send in sends(effects)]
    assert isinstance(subscribed, Subscribed)
    assert (subscribed.lease_seconds, subscribed.epoch) == (SUBSCRIPTION_SECONDS, EPOCH)
    return [event for event in events if isinstance(event, Event)]


def logged(server: Transcript, *notes: LogLine) -> list[Effect]:
    """The effects when the shell hands notes back to the machine."""
    return [effect for note in notes for effect in server.machine.logged(note, now=server.now)]


def statuses(effects: list[Effect]) -> dict[bytes, StatusUpdate]:
    return {send.to: send.message for send in sends(effects) if isinstance(send.message, StatusUpdate)}


def events(effects: list[Effect]) -> list[tuple[bytes, Event]]:
    return [(send.to, send.message) for send in sends(effects) if isinstance(send.message, Event)]


def test_a_subscriber_is_sent_the_status_once_a_second(server: Transcript) -> None:
    subscribe(server)
    times = [round(0.25 * tick, 2) for tick in range(1, 33) if statuses(server.after(0.25))]
    assert len(times) == 8
    assert {round(later - earlier, 2) for earlier, later in itertools.pairwise(times)} == {1.0}


def test_nothing_is_computed_while_nobody_subscribes(server: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(**_: Any) -> None:
        raise AssertionError("a status was computed")

    monkeypatch.setattr(server.machine, "status", status)
    server.after(1.0)
    subscribe(server)
    server.after(SUBSCRIPTION_SECONDS + 0.1)
    server.after(1.0)


def test_a_lease_ends_unless_it_is_renewed(server: Transcript) -> None:
    subscribe(server, "renews")
    subscribe(server, "forgets")
    for _ in range(3):
        server.after(SUBSCRIPTION_SECONDS / 2)
        subscribe(server, "renews")
    assert statuses(server.after(1.0)).keys() == {b"renews"}
    server.after(SUBSCRIPTION_SECONDS)
    assert logged(server, LogLine("unheard"))[1:] == []


def test_notes_become_events_of_their_kind(server: Transcript) -> None:
    subscribe(server)
    server.push("a", 1)
    effects = logged(
        server,
        LogLine("a joined", worker_id="a"),
        LogLine("odd", warning=True),
        LogLine("version 2 saved", kind="checkpoint"),
        LogLine("rate", kind="adjustment"),
        LogLine("over", kind="end"),
    )
    seen = [event for _, event in events(effects)]
    kinds = ["note", "warning", "checkpoint", "adjustment", "end"]
    assert [(event.number, event.kind) for event in seen] == list(enumerate(kinds, start=1))
    assert (seen[0].text, seen[0].worker_id, seen[0].global_steps) == ("a joined", "a", 20)
    assert [one.event for one in effects if isinstance(one, RecordEvent)] == seen


def test_there_are_so_many_subscribers_and_no_more(server: Transcript) -> None:
    for number in range(MOST_SUBSCRIBERS):
        subscribe(server, f"watcher {number}")
    refused = server.refusal("one more", messages.Subscribe(request=server.next_request()))
    assert refused.code == "too_many_subscribers"
    subscribe(server, "watcher 0")
    server.after(SUBSCRIPTION_SECONDS / 2)
    subscribe(server, "watcher 0")
    server.after(SUBSCRIPTION_SECONDS / 2 + 0.1)
    subscribe(server, "one more")


def test_a_peer_that_causes_notes_without_end_pushes_out_nothing_that_matters(server: Transcript) -> None:
    logged(server, LogLine("rate", kind="adjustment"))
    for _ in range(10_000):
        logged(server, LogLine("a is back"))
        logged(server, LogLine("a was refused", warning=True))
    kept = subscribe(server)
    assert kept[0].kind == "adjustment" or len(kept) == MOST_EVENTS
    assert sum(event.kind == "note" for event in kept) <= 100
