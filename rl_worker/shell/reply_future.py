"""A future whose result does not come by itself: the thread that waits for it drives the connection."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


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
