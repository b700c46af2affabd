"""When SUBSCRIBE is due, and which events are new."""

from ps_common.protocol.messages import Event, Subscribe, Subscribed
from ps_common.sockets.subscription import Subscriber

LEASE = 9.0


def subscribed(epoch: int = 1) -> Subscribed:
    return Subscribed(request=1, lease_seconds=LEASE, event=0, epoch=epoch)


def event(number: int) -> Event:
    return Event(number=number, kind="note", text="a joined", global_steps=0, minutes=0.0)


def test_a_silent_server_is_asked_again_after_the_retry_interval() -> None:
    subscriber = Subscriber(retry_seconds=0.5)
    assert subscriber.due(now=10.0) == Subscribe(request=1, events_after=0, epoch=0)
    assert subscriber.due(now=10.4) is None
    assert subscriber.due(now=10.5) == Subscribe(request=2, events_after=0, epoch=0)


def test_a_lease_is_renewed_before_it_ends_from_the_newest_event() -> None:
    subscriber = Subscriber(retry_seconds=0.5)
    subscriber.due(now=0.0)
    subscriber.take(subscribed(epoch=7), now=0.1)
    subscriber.take(event(4), now=0.2)
    assert subscriber.due(now=LEASE / 3) is None
    assert subscriber.due(now=LEASE / 2) == Subscribe(request=2, events_after=4, epoch=7)


def test_each_event_is_taken_once_and_anew_in_another_epoch() -> None:
    subscriber = Subscriber(retry_seconds=0.5, events_after=2)
    subscriber.take(subscribed(epoch=1), now=0.0)
    assert [subscriber.take(event(number), now=0.0) is not None for number in (2, 3, 3, 4)] == [
        False,
        True,
        False,
        True,
    ]
    subscriber.take(subscribed(epoch=2), now=0.0)
    assert subscriber.take(event(1), now=0.0) == event(1)
