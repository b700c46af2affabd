"""
Heartbeats, and the link timeout: how long a connection may be silent before it is taken for dead.

A message that will have a reply postpones the next heartbeat. There are several in a lease, and more while the server
should write a checkpoint.

A server with more to do than it can is silent too, for as long as its queue lasts. To reconnect then adds to the queue:
each worker sends its vectors again. Each timeout therefore doubles the next, until replies come as quickly as usual.
"""

import math

from ps_common.protocol.messages import Settled, ToWorker, Weights

TIMEOUT_SECONDS = 5.0
TIMEOUT_WITH_STANDBY_SECONDS = 1.0  # where there is another server to try
SLOWEST_BYTES_PER_SECOND = 1e6  # of a useful link: vectors in flight prolong the timeout
GAP_DECAY = 0.9  # the estimate of the longest normal silence decays by this factor with each shorter one
MOST_TIMES_LONGER = 16  # after timeouts in a row
HEARTBEATS_IN_A_LEASE = 5
CHECKPOINT_REQUEST_SECONDS = 0.25  # between two heartbeats that request a checkpoint


class LinkTimeout:
    """The timeout of one connection after another; `seconds` is that with nothing large in flight."""

    def __init__(self, *, has_standby: bool, now: float) -> None:
        """`has_standby`: there is another address."""
        self.seconds = TIMEOUT_WITH_STANDBY_SECONDS if has_standby else TIMEOUT_SECONDS
        self._has_standby = has_standby
        self._last_received = now  # or when the connection was new
        self._longest_gap = math.inf  # seconds, around large vectors, recently; measured only with a standby
        self._times_longer = 1  # than usual

    def received(self, message: ToWorker, *, now: float) -> None:
        """A message has come. With a standby, the gap before a large one is measured."""
        gap = now - self._last_received
        if isinstance(message, Weights | Settled):
            before = GAP_DECAY * self._longest_gap if math.isfinite(self._longest_gap) else 0.0
            self._longest_gap = max(gap, before) if self._has_standby else math.inf
            if gap < self.seconds:
                self._times_longer = max(1, self._times_longer // 2)
        self._last_received = now

    def begin(self, *, now: float) -> None:
        """The connection is new, or the worker joins again on it."""
        self._last_received = now

    def has_expired(self, large_bytes: int, *, now: float) -> bool:
        """Whether the link is dead, with vectors of so many bytes in flight in either direction."""
        usual = self.seconds + min(large_bytes / SLOWEST_BYTES_PER_SECOND, self._longest_gap)
        if now - self._last_received <= self._times_longer * usual:
            return False
        if math.isinf(self._longest_gap):
            self._times_longer = min(2 * self._times_longer, MOST_TIMES_LONGER)
        self._longest_gap = math.inf  # the link may have been slow
        return True


class Heartbeats:
    """When the next heartbeat of one worker is due."""

    def __init__(self, *, now: float) -> None:
        self._due = self._checkpoint_request_due = now

    def postpone(self, *, lease_seconds: float, timeout_seconds: float, now: float) -> None:
        """A message was sent that will have a reply."""
        # Also within the link timeout: without heartbeats there are no replies, and the link would look dead.
        self._due = now + min(lease_seconds, timeout_seconds) / HEARTBEATS_IN_A_LEASE

    def sent(self, *, now: float) -> None:
        """A heartbeat was sent."""
        self._checkpoint_request_due = now + CHECKPOINT_REQUEST_SECONDS

    def due(self, *, wants_checkpoint: bool) -> float:
        """When the next one is to be sent."""
        return min(self._due, self._checkpoint_request_due) if wants_checkpoint else self._due
