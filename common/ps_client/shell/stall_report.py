"""Log lines about a stalled trainer: for how long, and at which line of which file."""

import sys
import threading
import traceback

from ps_client.machine.stall_watch import Stall


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
