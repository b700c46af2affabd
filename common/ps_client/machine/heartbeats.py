"""
The times of heartbeats: several in a lease, and more while the server should write a checkpoint.

A message that will have a reply postpones the next heartbeat.
"""

HEARTBEATS_IN_A_LEASE = 5
CHECKPOINT_REQUEST_SECONDS = 0.25  # between two heartbeats that request a checkpoint


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
