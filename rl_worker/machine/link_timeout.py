"""How long a server may be silent before its connection is taken for dead."""

import math

from common.protocol.messages import Settled, ToWorker, Weights

SILENCE_SECONDS = 5.0
SILENCE_WITH_STANDBY_SECONDS = 1.0  # where there is another server to ask
SLOWEST_BYTES_PER_SECOND = 1e6  # of a link worth waiting for: what is under way prolongs the silence that is borne
GAP_DECAY = 0.9  # of the longest silence around large vectors, what is left of it with each shorter one


class LinkTimeout:
    """Of one connection after another; `seconds` is what is borne when nothing large is under way."""

    def __init__(self, *, has_choice: bool, now: float) -> None:
        """`has_choice`: there is another server to go to."""
        self.seconds = SILENCE_WITH_STANDBY_SECONDS if has_choice else SILENCE_SECONDS
        self._has_choice = has_choice
        self._heard = now  # anything on this connection, or it was new
        self._large_seconds = math.inf  # the longest silence around large vectors of late; learned if there is a choice

    def heard(self, message: ToWorker, *, now: float) -> None:
        """The server has said this. Where there is a choice: how long do large vectors keep this one silent?"""
        if self._has_choice and isinstance(message, Weights | Settled):
            before = GAP_DECAY * self._large_seconds if math.isfinite(self._large_seconds) else 0.0
            self._large_seconds = max(now - self._heard, before)
        self._heard = now

    def begin(self, *, now: float) -> None:
        """The connection is new, or begins anew."""
        self._heard = now

    def is_too_long(self, large_bytes: int, *, now: float) -> bool:
        """Whether it is, with vectors of so many bytes under way in either direction."""
        if now - self._heard <= self.seconds + min(large_bytes / SLOWEST_BYTES_PER_SECOND, self._large_seconds):
            return False
        self._large_seconds = math.inf  # it may have been the link
        return True
