"""
Handover: a server with a standby gets SIGTERM under load, TIMES times one after the other. Each time the server that
has the run then gets a new standby, at the address of the one that left.

Run it as a module, with sizes in the environment: TIMES=, WORKERS=. It measures the seconds from the signal until the
server has left with status 0, until the standby serves, and until the standby has applied a push. A server must have
left within 2 seconds. Every push is counted: none may be lost or count twice.

The workers are those of forked_worker.py: real clients in processes of their own, without a game.
"""

import mmap
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.trials import figures
from benchmarks.trials.counting import broken, compared
from benchmarks.trials.forked_worker import fork_worker
from tests.integration.processes import Program, Programs, free_ports, programs_in, status_of, wait_for, weights_of

MOST_SECONDS = 2.0


@dataclass(frozen=True)
class Handover:
    """Seconds since the signal."""

    left: float
    serves: float
    applies: float


class Pair:
    """The server of a run, and its standby. The process that makes one has a single thread, since it forks."""

    def __init__(self, programs: Programs, *, workers: int) -> None:
        self._programs = programs
        self._ports = free_ports(2)
        self._server, _ = programs.start_server(port=self._ports[0])
        self._standby = self._start_standby(programs.folder / "standby-0")
        self._counters = np.frombuffer(mmap.mmap(-1, 16 * workers), dtype=np.int64).reshape(workers, 2)
        both = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self._workers = [fork_worker(both, f"w{slot}", slot, self._counters) for slot in range(workers)]
        wait_for(lambda: (self._counters[:, 1] > 0).all(), program=self._server)

    def hand_over(self, number: int) -> Handover:
        """Signal the server, and measure; then start the next standby."""
        wait_for(self._is_in_sync, program=self._standby)
        where, began = self._addresses[1], time.monotonic()
        self._server.signal(signal.SIGTERM)
        seconds: dict[str, float] = {}
        version = 0
        while len(seconds) < 3:
            assert time.monotonic() < began + 60, (seconds, self._server.output[-2000:], self._standby.output[-2000:])
            now, status = time.monotonic() - began, status_of(where)
            if "left" not in seconds and self._server.process.poll() is not None:
                seconds["left"] = now
            if "serves" not in seconds and status.phase == "serving":
                seconds["serves"], version = now, status.version
            if "applies" not in seconds and "serves" in seconds and status.version > version:
                seconds["applies"] = now
            time.sleep(0.005)
        assert self._server.wait() == 0, self._server.output[-2000:]
        self._ports.reverse()
        self._server = self._standby
        self._standby = self._start_standby(self._programs.folder / f"standby-{number}")
        return Handover(**seconds)

    def finish(self) -> dict[str, int]:
        """Ask every worker to leave, then compare the weights with the counters."""
        for process in self._workers:
            os.kill(process, signal.SIGTERM)
        badly = sum(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0 for process in self._workers)
        counted = weights_of(self._addresses[0], len(self._workers)).numpy().astype(np.int64)
        begun, acknowledged = self._counters.T
        return {"left_badly": badly, **compared(begun, acknowledged, counted)}

    @property
    def _addresses(self) -> list[str]:
        """Of the server and its standby."""
        return [f"127.0.0.1:{port}" for port in self._ports]

    def _start_standby(self, folder: Path) -> Program:
        flags = ("--standby-of", self._addresses[0])
        return self._programs.start_server(*flags, run_dir=folder, port=self._ports[1])[0]

    def _is_in_sync(self) -> bool:
        standby = status_of(self._addresses[0]).standby
        return standby is not None and standby.phase == "in sync"


def trial(*, times: int, workers: int) -> dict[str, float]:
    """Figures by name: the longest of all times; `lost` and `doubled` must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder), import_anew=True) as programs:
        pair = Pair(programs, workers=workers)
        found = []
        for number in range(1, times + 1):
            found.append(pair.hand_over(number))
            print(f"handover {number}: {found[-1]}", flush=True)
        return {
            "left_seconds": max(one.left for one in found),
            "serves_seconds": max(one.serves for one in found),
            "applies_seconds": max(one.applies for one in found),
            **pair.finish(),
        }


def main() -> int:
    found = trial(**figures.sizes(times=5, workers=4))
    return figures.report(
        found,
        {
            **broken(found),
            f"a server leaves within {MOST_SECONDS:g} seconds": found["left_seconds"] > MOST_SECONDS,
            "workers leave in order": found["left_badly"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
