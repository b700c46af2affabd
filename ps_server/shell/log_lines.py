"""
The machine's lines in the log, at a limited rate.

Peers cause some lines ("joined", "is back"), perhaps a thousand times a second. Lines beyond a few a second are left
out and counted. Warnings have a limit of their own, so that no chatter can hide one.
"""

import logging

from ps_common.meters import RateLimit
from ps_server.state.effects import LogLine

AT_ONCE, PER_SECOND = 200, 10.0  # hundreds of workers may join at the same moment

_LEVELS = {False: logging.INFO, True: logging.WARNING}

log = logging.getLogger("ps-server")


class LogLines:
    """`now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._limits = {level: RateLimit(at_once=AT_ONCE, per_second=PER_SECOND) for level in _LEVELS.values()}
        self._left_out = dict.fromkeys(_LEVELS.values(), 0)

    def add(self, line: LogLine, *, now: float) -> None:
        """Log a line, unless there were too many."""
        if line.kind == "checkpoint":
            log.debug("%s", line.text)
            return
        level = _LEVELS[line.warning]
        if not self._limits[level].allows(now=now):
            self._left_out[level] += 1
            return
        if left_out := self._left_out[level]:
            self._left_out[level] = 0
            log.log(level, "(%d lines like the following were left out)", left_out)
        log.log(level, "%s", line.text)
