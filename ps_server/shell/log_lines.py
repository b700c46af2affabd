"""
The machine's lines in the log, at a limited rate.

Peers cause some lines ("joined", "is back"), perhaps a thousand times a second. Lines beyond a few a second are left
out and counted. No chatter can hide a warning, and no peer the lines of another (LineLimit).
"""

import logging

from ps_server.machine.subscriptions import LineLimit
from ps_server.state.effects import LogLine

AT_ONCE, PER_SECOND = 200, 10.0  # hundreds of workers may join at the same moment

log = logging.getLogger("ps-server")


class LogLines:
    """`now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._limit = LineLimit(at_once=AT_ONCE, per_second=PER_SECOND)
        self._left_out = {False: 0, True: 0}  # by whether they are warnings

    def add(self, line: LogLine, *, now: float) -> None:
        """Log a line, unless there were too many."""
        if line.kind == "checkpoint":
            log.debug("%s", line.text)
            return
        if not self._limit.allows(line, now=now):
            self._left_out[line.warning] += 1
            return
        level = logging.WARNING if line.warning else logging.INFO
        if left_out := self._left_out[line.warning]:
            self._left_out[line.warning] = 0
            log.log(level, "(%d more lines of this level were left out)", left_out)
        log.log(level, "%s", line.text)
