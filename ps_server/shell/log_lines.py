"""
The lines of the machine in the log, at a limited rate.

Peers cause some lines ("joined", "is back"), perhaps a thousand times a second. Lines beyond a few a second are left
out and counted. Those of one cause, a worker say, have a share of the limit of all, so that no worker can hide the
lines of another. The server's own warnings have no such cause, and are always shown.
"""

import logging

from ps_common.meters import RateLimit
from ps_server.machine.allowances import RateLimits
from ps_server.state.effects import LogLine

AT_ONCE, PER_SECOND = 200, 2.0  # hundreds of workers may join at the same moment
SHARE = 0.1  # for each cause
MOST_CAUSES = 1000

log = logging.getLogger("ps-server")


class LogLines:
    """Info and warnings have limits of their own. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._limits = {warning: RateLimit(at_once=AT_ONCE, per_second=PER_SECOND) for warning in (False, True)}
        self._shares = RateLimits(MOST_CAUSES)
        self._left_out = {False: 0, True: 0}  # by whether they are warnings

    def add(self, line: LogLine, *, now: float) -> bool:
        """Log a line, unless there were too many; whether it is logged."""
        if line.kind == "checkpoint":
            log.debug("%s", line.text)
            return True
        if not line.kind and not self._allows(line, now=now):
            self._left_out[line.warning] += 1
            return False
        level = logging.WARNING if line.warning else logging.INFO
        if left_out := self._left_out[line.warning]:
            self._left_out[line.warning] = 0
            log.log(level, "(%d more lines of this level were left out)", left_out)
        log.log(level, "%s", line.text)
        return True

    def _allows(self, line: LogLine, *, now: float) -> bool:
        cause = line.worker_id or line.peer
        if line.warning and not cause:
            return True
        who, at_once = (line.warning, cause), round(SHARE * AT_ONCE)
        if cause and not self._shares.allows(who, at_once=at_once, per_second=SHARE * PER_SECOND, now=now):
            return False
        return self._limits[line.warning].allows(now=now)
