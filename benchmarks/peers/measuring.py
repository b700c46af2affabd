"""Measures one run of a program: starts it, lets it train for some seconds, ends it, and reads its rows."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from benchmarks.peers.runners import Runner
from ps_common.errors import PsRlError
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import rows_in

SOLVED = 18.0  # points of Pong, as a mean of a hundred games
GAMES = 100
LEAVE_SECONDS = 30.0
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of the caller's shell: each program decides that itself


class NotMeasured(PsRlError):
    """A program has ended too early, or has not learned anything yet."""


class Row(msgspec.Struct, frozen=True):
    """The fields that metrics.jsonl of ps-rl and the peers' rows have in common."""

    time: float  # seconds since 1970
    global_steps: int
    updates: int
    episodes: int
    mean_return_100: float | None


@dataclass(frozen=True)
class Figures:
    """Of one run."""

    steps_per_second: float  # after the warm-up
    first_update_seconds: float  # after the command
    memory_mib: float  # PSS of all processes at the end
    mean_return: float | None  # of the last hundred training games
    games: int
    solved_minutes: float | None  # after the command


def run(runner: Runner, *, seconds: float, warm_seconds: float, sticky: float | None, seed: int) -> Figures:
    """One run. Raises NotMeasured."""
    with tempfile.TemporaryDirectory() as parent:
        folder, log = Path(parent) / "run", Path(parent) / "log"
        if not runner.is_ours:
            folder.mkdir()
        began = time.time()
        memory = _train(runner.command(folder, sticky=sticky, seed=seed), log, seconds)
        rows = list(rows_in(folder / METRICS, Row)) if (folder / METRICS).exists() else []
        return figures_of([row for row in rows if row.time <= began + seconds], memory, began, warm_seconds)


def _train(command: Sequence[str], log: Path, seconds: float) -> float:
    """The MiB in use at the end."""
    variables = {name: value for name, value in os.environ.items() if name not in THREAD_LIMITS}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=variables, cwd=log.parent, stdout=output, stderr=output)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return _memory_mib(psutil.Process(process.pid))
    finally:
        _end(process)
    last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
    raise NotMeasured(f"it ended with status {process.returncode}: {last}")


def _memory_mib(whole: psutil.Process) -> float:
    return float(sum(one.memory_full_info().pss for one in [whole, *whole.children(recursive=True)])) / 2**20


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def figures_of(rows: Sequence[Row], memory_mib: float, began: float, warm_seconds: float) -> Figures:
    """The figures of rows; `began` is the time of the command. Raises NotMeasured."""
    learned = [row for row in rows if row.updates]
    window = [row for row in learned if row.time >= began + warm_seconds]
    if len(window) < 2:
        raise NotMeasured(f"fewer than two rows after {warm_seconds:g} s: the machine is busy, or --seconds too few")
    first, last = window[0], window[-1]
    solved = (row for row in rows if row.episodes >= GAMES and (row.mean_return_100 or 0.0) >= SOLVED)
    minutes = next(((row.time - began) / 60 for row in solved), None)
    return Figures(
        steps_per_second=(last.global_steps - first.global_steps) / (last.time - first.time),
        first_update_seconds=learned[0].time - began,
        memory_mib=memory_mib,
        mean_return=last.mean_return_100,
        games=min(last.episodes, GAMES),
        solved_minutes=minutes,
    )
