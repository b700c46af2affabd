"""Ctrl-C in a program of somebody else's: KeyboardInterrupt waits for the end of what must be whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def postponed_interrupt() -> Iterator[None]:
    """A SIGINT in this block is handled at its end. Only the main thread handles signals; elsewhere nothing changes."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for number, frame in came[:1]:
        handler(number, frame)
