"""
The cost of watching: `python -m benchmarks.page.watching [--turns N] [--seconds N] [--preset NAME]`.

One run trains without a break. In each turn, windows of equal length follow each other: without the page, with a page
that nobody has open, and with one viewer who has the page open and sees a live game, while the metrics are scraped. The
next turn has them in the opposite order. The cost is the share of steps/s that is lost, as the median of the turns.
The second figure is processor time per step, of the server, the workers and the page together: it is far less noisy.
The exit status is 1 where a viewer takes more than 1 % of it.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import psutil
import tyro
from rich.console import Console
from rich.table import Table

from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT
from ps_common.sockets.request import status_of

TOKEN = "a-benchmark"
LOOK_SECONDS = 5.0  # between two requests of the page for its list of runs
LOOKS_A_SCRAPE = 3
MOST_COST = 0.01  # of processor time per step, that one viewer may take
WARM_UP_SECONDS = 15.0  # after the first step
NONE, IDLE, VIEWER = "no page", "page, nobody looks", "page, metrics, live game"


@dataclass(frozen=True)
class Flags:
    """The cost of watching a run."""

    preset: str = "pong"
    workers: int = 2
    turns: int = 5
    seconds: float = 30.0
    """of one window"""


@dataclass(frozen=True)
class Window:
    """Steps a second, and seconds of processor time per 1,000 steps."""

    rate: float
    processor: float


class Watched:
    """A run, its page, and whoever looks at it."""

    def __init__(self, folder: Path, flags: Flags) -> None:
        self._started: list[psutil.Popen] = []
        self._run, self._file = folder / "run", folder / "page"
        self._flags = flags

    def start(self) -> None:
        """Returns when the run has made its first steps."""
        run = self._run
        server = [
            "ps_server",
            "--preset",
            self._flags.preset,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--run-dir",
            str(run),
        ]
        endless = ["--max-steps", "1000000000", "--max-minutes", "0", "--until-return", "None"]
        self._started.append(_start(*server, *endless))
        endpoint = run / ENDPOINT
        _wait_for(lambda: bool(read_endpoint(endpoint)))
        self.server = read_endpoint(endpoint)
        for number in range(self._flags.workers):
            self._started.append(_start("rl_worker", "--server", self.server, "--name", f"worker-{number}"))
        page = ["ps_web", str(run), "--port", "0", "--token", TOKEN, "--address-file", str(self._file)]
        self._page = _start(*page)
        self._started.append(self._page)
        _wait_for(self._file.exists)
        self._address = self._file.read_text().partition("?")[0]
        _wait_for(lambda: status_of(self.server, timeout_seconds=30).status.global_steps > 0)

    def measure(self, condition: str, seconds: float) -> Window:
        """One window; the first fifth of it, in which things settle, does not count."""
        if condition == NONE:
            self._page.suspend()
        with self._looked_at() if condition == VIEWER else _nothing():
            time.sleep(seconds / 5)
            start, steps, spent = (
                time.monotonic(),
                status_of(self.server, timeout_seconds=30).status.global_steps,
                self._spent(),
            )
            time.sleep(seconds)
            steps = status_of(self.server, timeout_seconds=30).status.global_steps - steps
            took, spent = time.monotonic() - start, self._spent() - spent
        self._page.resume()
        return Window(steps / took, 1000 * spent / steps)

    def end(self) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()

    def _spent(self) -> float:
        times = [process.cpu_times() for process in self._started]
        return float(sum(one.user + one.system for one in times))

    @contextmanager
    def _looked_at(self) -> Iterator[None]:
        over = threading.Event()
        stream = self._open("api/stream")
        self._open("api/runs/0/watch", {"worker_id": "worker-0"}).close()
        frames = 0

        def read() -> None:
            nonlocal frames
            for line in stream:
                frames += line == b"event: frame\n"
                if over.is_set():
                    return

        def scrape() -> None:
            for asked in itertools.count(1):
                if over.wait(LOOK_SECONDS):
                    return
                self._open("api/runs").read()
                if asked % LOOKS_A_SCRAPE == 0:
                    self._open("metrics").read()

        threads = [threading.Thread(target=read), threading.Thread(target=scrape)]
        for thread in threads:
            thread.start()
        yield
        over.set()
        for thread in threads:
            thread.join()
        stream.close()
        assert frames > 0, "the live game did not move"

    def _open(self, path: str, content: object = None) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, data, headers)
        opened: HTTPResponse = urllib.request.urlopen(request, timeout=30)
        return opened


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _start(module: str, *flags: str) -> psutil.Popen:
    return psutil.Popen([sys.executable, "-m", module, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "a program did not start"
        time.sleep(0.1)


def main(flags: Flags) -> None:
    measured: dict[str, list[Window]] = {NONE: [], IDLE: [], VIEWER: []}
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder), flags)
        try:
            watched.start()
            time.sleep(WARM_UP_SECONDS)
            for turn in range(flags.turns):
                for condition in list(measured)[:: -1 if turn % 2 else 1]:
                    measured[condition].append(watched.measure(condition, flags.seconds))
                    print(f"turn {turn + 1}, {condition}: {measured[condition][-1]}", flush=True)
        finally:
            watched.end()
    show(measured)
    if (cost := _cost(measured[VIEWER], measured[NONE])) > MOST_COST:
        sys.exit(f"a viewer takes {100 * cost:.2f} % of processor time; at most {100 * MOST_COST:g} % are promised")


def show(measured: Mapping[str, Sequence[Window]]) -> None:
    """Medians, and the cost against no page, turn by turn."""
    table = Table("", "steps/s", "costs of steps/s", "processor s per 1,000 steps", "costs of processor time")
    for condition, windows in measured.items():
        pairs = list(zip(windows, measured[NONE], strict=True))
        table.add_row(
            condition,
            f"{statistics.median(one.rate for one in windows):.0f}",
            f"{100 * statistics.median(1 - one.rate / bare.rate for one, bare in pairs):.2f} %",
            f"{statistics.median(one.processor for one in windows):.4f}",
            f"{100 * _cost(windows, measured[NONE]):.2f} %",
        )
    Console().print(table)


def _cost(windows: Sequence[Window], bare: Sequence[Window]) -> float:
    """The share of processor time per step that is added, as the median of the turns."""
    return statistics.median(one.processor / none.processor - 1 for one, none in zip(windows, bare, strict=True))


if __name__ == "__main__":
    main(tyro.cli(Flags))
