"""
The state of a subscription: when SUBSCRIBE is due, and which events are new. Pure: its callers own the sockets.

A lease is renewed before it ends. A server that was restarted counts events anew, in another epoch.
"""

from ps_common.protocol.messages import Event, StatusUpdate, Subscribe, Subscribed

RENEWALS_IN_A_LEASE = 3


class Subscriber:
    """`retry_seconds` pass between two requests without a reply. `now` is seconds of any monotonic clock."""

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
