"""A future whose result somebody has to work for: whoever waits for it."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ReplyFuture(Future[T]):
    """`work` is called by who waits, with this and his patience in seconds, and returns when either is at an end."""

    def __init__(self, work: Callable[[Future[Any], float | None], None]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> T:
        self._work(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._work(self, timeout)
        return super().exception(0)
