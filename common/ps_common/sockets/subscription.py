"""A subscription to a server: its status once a second and its events, for as long as the caller listens."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress

import zmq

from ps_common.errors import RequestRefused, ServerUnreachable, WireError
from ps_common.protocol.messages import Event, Refused, StatusUpdate, Subscribe, Subscribed
from ps_common.protocol.wire import to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connected, read_message

FIRST_REPLY_SECONDS = 10.0  # until a server that has never replied counts as unreachable
SILENCE_SECONDS = 2.5  # without a message: the server may have been restarted, and knows no subscriber
RETRY_SECONDS = 0.5  # between two requests to a silent server
TURN_SECONDS = 0.25
RENEWALS_IN_A_LEASE = 3


class Subscriber:
    """
    When SUBSCRIBE is due, and which events are new. A server that was restarted counts events from 1, in another epoch.

    `retry_seconds` pass between two requests without a reply. `now` is seconds of any monotonic clock.
    """

    def __init__(self, *, retry_seconds: float, events_after: int = 0) -> None:
        self.epoch = 0  # in which events are counted now; 0: no server has replied yet
        self._events_after = events_after
        self._retry_seconds = retry_seconds
        self._renew_at = 0.0
        self._request = 0

    def due(self, *, now: float) -> Subscribe | None:
        """The request to send now, if any."""
        if now < self._renew_at:
            return None
        self._request, self._renew_at = self._request + 1, now + self._retry_seconds
        return Subscribe(request=self._request, events_after=self._events_after, epoch=self.epoch)

    def renew_by(self, when: float) -> None:
        """Send the next request then at the latest: the server is silent, or the connection is another."""
        self._renew_at = min(self._renew_at, when)

    def take(self, message: object, *, now: float) -> Subscribed | StatusUpdate | Event | None:
        """The message, if it belongs to the subscription; an event only once."""
        match message:
            case Subscribed():
                self._renew_at = now + message.lease_seconds / RENEWALS_IN_A_LEASE
                if self.epoch not in (0, message.epoch):
                    self._events_after = 0
                self.epoch = message.epoch
                return message
            case StatusUpdate():
                return message
            case Event() if message.number > self._events_after:
                self._events_after = message.number
                return message
        return None


def subscription(
    server: str, *, keys: ClientKeys | None = None, events_after: int = 0
) -> Iterator[Subscribed | StatusUpdate | Event | None]:
    """
    What HOST:PORT sends: each Event once, those after `events_after` first; None now and then while it is silent.

    A restarted server is subscribed to again. Raises ServerUnreachable if no server has ever replied, RequestRefused.
    """
    subscriber = Subscriber(retry_seconds=RETRY_SECONDS, events_after=events_after)
    with zmq.Context() as context, closing(connected(context, server, keys)) as socket:
        began = last = time.monotonic()
        while True:
            now = time.monotonic()
            if request := subscriber.due(now=now):
                with suppress(zmq.Again):  # there is no connection yet; the next attempt may find one
                    socket.send_multipart(to_frames(request), zmq.NOBLOCK)
            if not socket.poll(int(1000 * TURN_SECONDS)):
                if subscriber.epoch == 0 and now - began > FIRST_REPLY_SECONDS:
                    raise ServerUnreachable(f"{server} sent no reply within {FIRST_REPLY_SECONDS:g} s")
                if now - last > SILENCE_SECONDS:
                    subscriber.renew_by(now + RETRY_SECONDS)
                    yield None
                continue
            last = time.monotonic()
            try:
                message, _ = read_message(socket)
            except (WireError, zmq.Again):
                continue
            if isinstance(message, Refused):
                raise RequestRefused(message.code, message.reason)
            if news := subscriber.take(message, now=last):
                yield news
