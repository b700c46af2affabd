"""
Measures trials: real workers at one server, which stays, so that a trial starts only the workers that it lacks.

A measurement begins and ends with a push, when the steps of an unroll are counted: so it holds whole unrolls, also of
one slow worker.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.trials import Row, Trial
from ps_common.errors import PsRlError
from ps_common.protocol.status import Status
from ps_common.sockets.request import status_of

POLL_SECONDS = 0.02  # between two looks at the steps
START_POLL_SECONDS = 0.25  # between two looks at workers that start
REPLY_SECONDS = 10.0  # of a busy server
LEAVE_SECONDS = 15.0


class NotMeasured(PsRlError):
    """A trial had no time, or one of its workers died."""


def start_worker(flags: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """rl-worker with these flags, and a file for its output."""
    with log.open("ab") as output:
        return subprocess.Popen([sys.executable, "-m", "rl_worker", *flags], stdout=output, stderr=output)


@dataclass(frozen=True)
class Moment:
    """The server right after a push."""

    seconds: float
    cpu_seconds: float  # of its process
    status: Status


class Workers:
    """The workers that run now, at the server whose address and process are given."""

    def __init__(self, server: tuple[str, int], folder: Path) -> None:
        self._address, self._pid = server
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def measure(self, trial: Trial, *, seconds: float, until: float) -> Row:
        """The trial over at least so many seconds. Raises NotMeasured, at time `until` (monotonic) at the latest."""
        began = time.monotonic()
        _check(until)
        self._become(trial)
        self._wait_for_pushes(trial, until)
        started = time.monotonic()
        first = self._at_a_push(until)
        time.sleep(max(0.0, min(first.seconds + seconds, until) - time.monotonic()))
        return _row(trial, first, self._at_a_push(until), start_seconds=started - began)

    def end(self) -> None:
        """End all workers."""
        self._leave(list(self._running))

    def _become(self, trial: Trial) -> None:
        """End the workers that the trial does not have, and start those that it lacks."""
        flags = trial.worker_flags
        self._leave([name for name in self._running if name not in flags])
        for name in flags.keys() - self._running.keys():
            given = ["--server", self._address, "--name", name, *flags[name]]
            self._running[name] = start_worker(given, self._log(name))

    def _leave(self, names: Sequence[str]) -> None:
        leaving = [self._running.pop(name) for name in names]
        for process in leaving:
            process.terminate()
        for process in leaving:
            process.wait(LEAVE_SECONDS)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_for_pushes(self, trial: Trial, until: float) -> None:
        """Wait until each worker of the trial, and no other, works: it has pushed since it joined."""
        names = trial.worker_flags.keys()
        before: dict[str, int] = {}
        while True:
            workers = [worker for worker in self._status(until).workers if worker.alive]
            alive = {worker.worker_id: worker.pushes for worker in workers if trial.is_whole(worker)}
            if alive.keys() == names and all(alive[name] > before.setdefault(name, alive[name]) for name in names):
                return
            time.sleep(START_POLL_SECONDS)

    def _at_a_push(self, until: float) -> Moment:
        steps = self._status(until).global_steps
        while (status := self._status(until)).global_steps == steps:
            time.sleep(POLL_SECONDS)
        return Moment(time.monotonic(), _cpu_seconds(self._pid), status)

    def _status(self, until: float) -> Status:
        _check(until)
        for name, process in self._running.items():
            if process.poll() is not None:
                last = (self._log(name).read_text(errors="replace").strip().splitlines() or [""])[-1]
                raise NotMeasured(f"worker {name} has ended: {last} (see {self._log(name)})")
        return status_of(self._address, timeout_seconds=REPLY_SECONDS).status


def _check(until: float) -> None:
    if time.monotonic() > until:
        raise NotMeasured("no time was left for it")


def _row(trial: Trial, first: Moment, last: Moment, *, start_seconds: float) -> Row:
    """The rates between two moments."""
    seconds = last.seconds - first.seconds
    before, after = first.status, last.status
    updates = after.updates - before.updates
    stale = after.staleness_mean * after.updates - before.staleness_mean * before.updates
    return Row(
        trial=trial,
        steps_per_second=(after.global_steps - before.global_steps) / seconds,
        updates_per_second=updates / seconds,
        staleness=max(0.0, stale) / max(updates, 1),
        server_share=(last.cpu_seconds - first.cpu_seconds) / seconds,
        start_seconds=start_seconds,
    )


def _cpu_seconds(pid: int) -> float:
    """The time that all threads of a process have computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
