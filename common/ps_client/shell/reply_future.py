"""A future whose result does not come by itself: the thread that waits for it drives the connection."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
TURN_SECONDS = 0.05  # for one connection, while others wait to be driven


class ReplyFuture(Future[T]):
    """`drive(future, timeout)` is called by the waiting thread; it returns when the future is done or time is up."""

    def __init__(self, drive: Callable[[Future[Any], float | None], None]) -> None:
        super().__init__()
        self._drive = drive

    def result(self, timeout: float | None = None) -> T:
        self._drive(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._drive(self, timeout)
        return super().exception(0)


def results(futures: Sequence[Future[T]]) -> list[T]:
    """All results, of futures on several connections, which are driven in turn. The first error is raised at once."""
    while waiting := [future for future in futures if not future.done()]:
        with suppress(TimeoutError):
            waiting[0].exception(timeout=TURN_SECONDS)
        for future in futures:
            if future.done():
                future.result()
    return [future.result() for future in futures]
