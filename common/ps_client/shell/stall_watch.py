"""
A stalled trainer: one whose step takes much longer than any of its steps before.

A step is whatever the trainer does between two calls of `progressed`: one step of its environments, one gradient, one
poll while it waits for a reply. So slow environments, long checkpoints and recorded games are not a stall, but an
environment that hangs is.
"""

import logging
import sys
import threading
import traceback

from ps_common.program.reasons import report_reason

TIMES_LONGER = 10  # than the longest step so far
PAUSE_SECONDS = 1.0  # between two checks, which come many times a second: the process was paused
FIRST_TIMES_LONGER = 10  # than the least time, before the first push: compiling and building take long

log = logging.getLogger("rl-worker")


class StallWatch:
    """Watches one trainer, which runs in the main thread and calls `progressed`. Other threads call `check`."""

    def __init__(self, least_seconds: float, *, now: float) -> None:
        """A step of less than `least_seconds` is never a stall."""
        self.stalled_seconds = 0.0  # since the last step, if the trainer was stalled at the last check
        self._least_seconds = least_seconds
        self._has_pushed = False
        self._longest = 0.0  # step since the first push
        self._checked = now
        self._running = 0.0  # seconds that the process has run until the last check
        self._progressed = 0.0  # the same at the last step

    def progressed(self) -> None:
        """The trainer has made a step."""
        if self._has_pushed:
            self._longest = max(self._longest, self._running - self._progressed)
        self._progressed = self._running

    def check(self, *, has_pushed: bool, now: float) -> None:
        """Log the beginning and the end of a stall. To be called many times a second; a longer gap is a pause."""
        self._running += min(now - self._checked, PAUSE_SECONDS)
        self._checked, self._has_pushed = now, has_pushed
        least = self._least_seconds if has_pushed else FIRST_TIMES_LONGER * self._least_seconds
        seconds, before = self._running - self._progressed, self.stalled_seconds
        self.stalled_seconds = seconds if seconds > max(least, TIMES_LONGER * self._longest) else 0.0
        if self.stalled_seconds and not before:
            _report(seconds, self._longest)
        elif before and not self.stalled_seconds:
            log.info("the trainer continues, after %.0f s without a step", before)


def _report(seconds: float, longest: float) -> None:
    """Log the call stack of the trainer; rl-cluster shows the last line as the reason why it replaces the worker."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack = traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
    log.warning("the trainer is stalled here:\n%s", "".join(stack.format()))
    place = f", in {stack[-1].filename}, line {stack[-1].lineno}, {stack[-1].name}()" if stack else ""
    story = (
        f"no step for {seconds:.0f} s{place}; the longest before took {longest:.1f} s "
        "(--stall-seconds gives steps more time)"
    )
    log.warning("%s", story)
    report_reason("hangs", story)
