"""A measuring process: waits for "SECONDS" on stdin, works for so long, prints what it measured; ends with stdin."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Calls a second, and what one of them took: its median and its 99th percentile, in microseconds."""

    rate: float
    p50: float
    p99: float


def serve_commands(once: Callable[[], None]) -> None:
    """In the measuring process: for each line, figures of how `once` was called for so long."""
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
    """In the measuring program: such a process."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._is_ready = False

    def wait(self) -> None:
        """Until it can begin."""
        while not self._is_ready:
            self._is_ready = self._line() == "ready"

    def begin(self, seconds: float) -> None:
        """Start measuring."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def result(self) -> Figures:
        """What was measured."""
        return Figures(*map(float, self._line().split()))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._process.args} has failed"
        return line.strip()


def total(clients: list[Measured], seconds: float) -> float:
    """Rates of clients that work at the same time, added up."""
    return sum(figures.rate for figures in figures_of(clients, seconds))


def figures_of(clients: list[Measured], seconds: float) -> list[Figures]:
    """Of clients that work at the same time."""
    for client in clients:
        client.wait()
    for client in clients:
        client.begin(seconds)
    return [client.result() for client in clients]
