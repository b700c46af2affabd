"""
The patience of a worker's machine, in three clocks. `now` is seconds of any monotonic clock.

- Heartbeats: there are several in a lease, and more while the server should write a checkpoint. A message that will
  have a reply postpones the next one.
- The link timeout: how long a connection may be silent before it is taken for dead. A server with more to do than it
  can is silent too, for as long as its queue lasts. To reconnect then adds to the queue: each worker sends its vectors
  again. Each timeout therefore doubles the next, until replies come as quickly as usual.
- Patience with a server that does not serve the worker, or replies and fulfils no request.
"""

import math

from ps_common.errors import ServerUnreachable
from ps_common.protocol.messages import Alive, Settled, ToWorker, Weights

TIMEOUT_SECONDS = 5.0
TIMEOUT_WITH_STANDBY_SECONDS = 1.0  # where there is another server to try
HELD_SECONDS = 2.0  # shards that all wait for the same push release it long before
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
        self._held_since: float | None = None  # when a push began to wait at the server for those of other workers
        self._looked = now  # last

    def received(self, message: ToWorker, *, now: float) -> None:
        """A message has come. With a standby, the gap before a large one is measured."""
        gap = now - self._last_received
        if isinstance(message, Weights | Settled):
            before = GAP_DECAY * self._longest_gap if math.isfinite(self._longest_gap) else 0.0
            self._longest_gap = max(gap, before) if self._has_standby else math.inf
            if gap < self.seconds:
                self._times_longer = max(1, self._times_longer // 2)
        self._last_received = now
        is_held = isinstance(message, Alive) and message.waiting
        self._held_since = None if not is_held else now if self._held_since is None else self._held_since

    def begin(self, *, now: float) -> None:
        """The connection is new, or the worker joins again on it."""
        self._last_received, self._held_since = now, None

    @property
    def is_held(self) -> bool:
        """
        Whether the server had kept a push waiting for those of other workers for HELD_SECONDS when `has_expired` looked
        last. For any thread: the clock of another connection stood still in other pauses.
        """
        since = self._held_since
        return since is not None and self._looked - since >= HELD_SECONDS

    def has_expired(self, large_bytes: int, *, now: float) -> bool:
        """Whether the link is dead, with vectors of `large_bytes` in flight in either direction."""
        self._looked = now
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

    def was_away(self) -> None:
        """The process was paused, and `now` stood still; the lease at the server did not."""
        self._due = -math.inf

    def sent(self, *, now: float) -> None:
        """A heartbeat was sent."""
        self._checkpoint_request_due = now + CHECKPOINT_REQUEST_SECONDS

    def due(self, *, wants_checkpoint: bool) -> float:
        """When the next one is to be sent."""
        return min(self._due, self._checkpoint_request_due) if wants_checkpoint else self._due


WARNING_SECONDS = 10.0  # between two lines about a server that does not serve this worker


class Patience:
    """One worker's time without service. `refusal` is the reason of the server, "" if none has replied."""

    def __init__(self, seconds: float, *, now: float) -> None:
        self.warning_due = now + WARNING_SECONDS
        self._seconds = seconds
        self._served = self._awake_since = now  # the last service, and the end of the last pause
        self._fulfilled = now  # the last service while no request was refused
        self._refused, self._refused_at = "", now  # why a request is to be sent again; "" once one is fulfilled
        self._away = 0.0  # seconds of pauses since the last service, in which `now` stood still

    def served(self, *, now: float) -> None:
        """A message has come from a server that serves this worker."""
        self._served, self._awake_since, self._away = now, now, 0.0
        if now - self._refused_at > WARNING_SECONDS:  # in a row, refusals are seconds apart
            self._refused = ""
        if not self._refused:
            self._fulfilled, self.warning_due = now, now + WARNING_SECONDS

    def refused(self, why: str, *, now: float) -> None:
        """A request was refused, and is sent again."""
        self._refused, self._refused_at = why, now

    def fulfilled(self) -> None:
        """A request of the trainer has its reply."""
        self._refused = ""

    def was_away(self, seconds: float, *, now: float) -> None:
        """The process was paused for so long: it has asked nobody meanwhile."""
        self._away += seconds
        self._awake_since = now

    def silence(self, *, now: float) -> tuple[float, float]:
        """Seconds since the worker was served, and those of them since the last pause."""
        return now - self._served + self._away, now - self._awake_since

    def error(self, refusal: str, *, now: float) -> ServerUnreachable | None:
        """Why the worker gives up, if it does."""
        if now - self._fulfilled <= self._seconds:
            return None
        refusal = refusal or self._refused
        hint = "" if refusal else "; is it running, are --server and keys right?"
        return ServerUnreachable(self._trouble(refusal, now) + hint)

    def warning(self, refusal: str, *, now: float) -> str:
        """A line for the log, if one is due; else ""."""
        if now < self.warning_due:
            return ""
        self.warning_due = now + WARNING_SECONDS
        return f"{self._trouble(refusal or self._refused, now)}; still trying"

    def _trouble(self, refusal: str, now: float) -> str:
        seconds = now - self._fulfilled
        return f"not served for {seconds:.0f} s: {refusal}" if refusal else f"no reply for {seconds:.0f} s"
