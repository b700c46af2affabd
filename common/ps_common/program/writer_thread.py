"""
Work that a disk or a reader may block for ever, done by a thread of its own, so that no other thread waits.

The queue has a bound. Beyond it new work is dropped and counted.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("ps-rl")


class WriterThread:
    """A queue of work, done in order. The thread ends with the program, even inside of a piece of work."""

    def __init__(self, name: str, *, most: int) -> None:
        """`most`: the greatest size of all waiting work together."""
        self.dropped = 0
        self._most = most
        self._waiting = 0
        self._lock = threading.Lock()  # of `_waiting` and `dropped`
        self._work: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None], *, size: int = 1) -> bool:
        """Queue work, and return at once. False: the queue is full, and this was dropped."""
        with self._lock:
            if self._waiting and self._waiting + size > self._most:
                self.dropped += 1
                return False
            self._waiting += size
        self._work.put((work, size))
        return True

    def close(self, *, within_seconds: float) -> bool:
        """Accept no more work. Returns whether all is done in time; if not, the thread goes on with it."""
        self._work.put(None)
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, size = job
            try:
                work()
            except Exception:  # a bug in one piece of work must not lose the others
                log.exception("the thread %s goes on after an error", self._thread.name)
            del job, work  # frees its memory
            with self._lock:
                self._waiting -= size
