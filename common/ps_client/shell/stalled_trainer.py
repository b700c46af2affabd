"""The trainer in the main thread, as the thread of its connection sees it: whether it is stalled, and where."""

import logging
import sys
import threading
import time
import traceback

from ps_client.machine.patience import Stall, StallWatch
from ps_common.program.reasons import say

log = logging.getLogger("rl-worker")


class Trainer:
    """A trainer with a watch; without one nothing is ever a stall."""

    def __init__(self, watch: StallWatch | None) -> None:
        self._watch = watch
        self._stall: Stall | None = None

    @property
    def is_stalled(self) -> bool:
        return self._stall is not None

    def progressed(self) -> None:
        """The trainer waits for its server, which is no stall."""
        if self._watch is not None:
            self._watch.progressed(now=time.monotonic())

    def check(self, *, has_pushed: bool) -> None:
        """Log where the trainer is when a stall begins; heartbeats report it to the server."""
        if self._watch is None:
            return
        before = self._stall
        self._stall = self._watch.check(has_pushed=has_pushed, now=time.monotonic())
        if before is None and self._stall is not None:
            log.warning("the trainer is stalled here:\n%s", "".join(main_thread_stack().format()))
            log.warning("%s", story := describe_stall(self._stall))
            say("hangs", story)
        elif before is not None and self._stall is None:
            log.info("the trainer goes on, after %.0f s without a step", before.seconds)


def main_thread_stack() -> traceback.StackSummary:
    """The call stack of the main thread, the innermost call last; empty when the thread has ended."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()


def describe_stall(stall: Stall) -> str:
    """One line; rl-cluster shows it as the reason why it has replaced the worker."""
    stack = main_thread_stack()
    place = f", in {stack[-1].filename}, line {stack[-1].lineno}, {stack[-1].name}()" if stack else ""
    return (
        f"no step for {stall.seconds:.0f} s{place}; the longest before took {stall.longest_before:.1f} s "
        "(--stall-seconds gives steps more time)"
    )
