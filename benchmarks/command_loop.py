"""A measuring process: waits for "SECONDS" on stdin, works for so long, prints what it measured; ends with stdin."""

import subprocess
import sys
import time
from collections.abc import Callable


def serve_commands(once: Callable[[], None]) -> None:
    """In the measuring process: for each line, how often a second `once` can be called."""
    once()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = float(line)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            once()
            count += 1
        print(count / (time.perf_counter() - start), flush=True)


class Measured:
    """In the measuring program: such a process."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._expect("ready")

    def begin(self, seconds: float) -> None:
        """Start measuring."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def result(self) -> float:
        """What was measured, once a second."""
        return float(self._line())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._process.args} has failed"
        return line.strip()

    def _expect(self, word: str) -> None:
        while self._line() != word:
            pass


def total(clients: list[Measured], seconds: float) -> float:
    """Rates of clients that work at the same time, added up."""
    for client in clients:
        client.begin(seconds)
    return sum(client.result() for client in clients)
