"""
Work that a disk or a reader may hold up for ever, done by a thread of its own: nobody else waits for it.

What waits to be done has a bound. Beyond it new work is dropped and counted.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("ps-rl")


class WriterThread:
    """Does one piece of work after another. The thread ends with the program, also in the midst of one."""

    def __init__(self, name: str, *, most: int) -> None:
        """`most` is the size of all work that may wait."""
        self.dropped = 0
        self._most = most
        self._waiting = 0
        self._lock = threading.Lock()  # of the line above
        self._work: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None], *, size: int = 1) -> bool:
        """Hand work over, and return at once. False: too much waits already, and this was dropped."""
        with self._lock:
            if self._waiting and self._waiting + size > self._most:
                self.dropped += 1
                return False
            self._waiting += size
        self._work.put((work, size))
        return True

    def close(self, *, within_seconds: float) -> bool:
        """No more work comes. Whether what was handed over is done by then; if not, it goes on in the background."""
        self._work.put(None)
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, size = job
            try:
                work()
            except Exception:  # a mistake of ours in one piece must not lose all others
                log.exception("the thread %s goes on after an error", self._thread.name)
            del job, work  # it may hold memory that others can use
            with self._lock:
                self._waiting -= size
