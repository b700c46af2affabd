"""A measuring process: for each line "SECONDS" on stdin it works for that time and prints figures."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Calls per second; the median and 99th percentile of one call, in microseconds."""

    rate: float
    p50: float
    p99: float


def serve_commands(once: Callable[[], None]) -> None:
    """In the measuring process: for each line call `once` repeatedly for SECONDS and print figures."""
    once()
    print("ready", flush=True)
    for line in sys.stdin:
        took: list[float] = []
        start = now = time.perf_counter()
        while now - start < float(line):
            once()
            before, now = now, time.perf_counter()
            took.append(now - before)
        took.sort()
        print(len(took) / (now - start), 1e6 * took[len(took) // 2], 1e6 * took[len(took) * 99 // 100], flush=True)


class Measured:
    """In the benchmark: the handle of a measuring process."""

    def __init__(self, *command: str, python: str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [python, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._is_ready = False

    def wait(self) -> None:
        """Wait until the process is ready to measure."""
        while not self._is_ready:
            self._is_ready = self._line() == "ready"

    def begin(self, seconds: float) -> None:
        """Start measuring."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def result(self) -> Figures:
        """The measurements."""
        return Figures(*map(float, self._line().split()))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._process.args!r} has failed"
        return line.strip()


def total(clients: list[Measured], seconds: float) -> float:
    """The sum of the rates of clients that work at the same time."""
    return sum(figures.rate for figures in figures_of(clients, seconds))


def figures_of(clients: list[Measured], seconds: float) -> list[Figures]:
    """Figures of clients that work at the same time."""
    for client in clients:
        client.wait()
    for client in clients:
        client.begin(seconds)
    return [client.result() for client in clients]
