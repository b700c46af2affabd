"""What the log says of a trainer that stands still: for how long, and in which line of which file."""

import sys
import threading
import traceback

from rl_worker.machine.stall_watch import Standstill


def main_thread_stack() -> traceback.StackSummary:
    """Where the main thread is, the innermost call last; empty when it has ended."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()


def standstill_in_words(standstill: Standstill) -> str:
    """One line; rl-cluster shows it as why it has replaced the worker."""
    stack = main_thread_stack()
    place = f", in {stack[-1].filename}, line {stack[-1].lineno}, {stack[-1].name}()" if stack else ""
    return (
        f"no step for {standstill.seconds:.0f} s{place}; the longest before took {standstill.longest_before:.1f} s "
        "(--stall-seconds gives steps more time)"
    )
