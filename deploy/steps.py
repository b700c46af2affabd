"""
The common part of the engines' scenarios: steps and their seconds, the status of a run, runs whose pushes are counted.

A counted run has benchmarks/trials/swarm.py in place of rl-worker: each worker adds 1 to a weight of its own, and notes
in a file how many pushes it has begun, and how many were acknowledged. So the weights show exactly what is lost or
doubled.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.trials.swarm import counters_in
from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.protocol.status import Status
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.sockets.curve import ClientKeys, CurveFlags
from ps_common.sockets.request import status_of
from tests.integration.processes import wait_for, weights_of

FIRST_PUSH_SECONDS = 60.0  # after the submit
DEADLINE_SECONDS = 180.0  # of a wait; a busy machine is slow
REPLY_SECONDS = 3.0
POLL_SECONDS = 0.2
COUNTED_WORKERS = 8  # at most, of a counted run


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say how the step ended, and after how many seconds."""
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(f"FAILED  {time.monotonic() - started:6.1f} s  {what}", flush=True)
        raise
    print(f"ok      {time.monotonic() - started:6.1f} s  {what}", flush=True)


def kill_and_wait(*words: str) -> None:
    """Kill the process whose command line has all of these words, with SIGKILL, and wait until it was started again."""
    (pid,) = before = pids_of(*words)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pids_of(*words) not in ([], before))


def pids_of(*words: str) -> list[int]:
    """The processes whose command lines have all of these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode() if entry.name.isdigit() else ""
        except OSError:  # it has just ended
            continue
        if line and all(word in line for word in words) and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


class Run:
    """A run that an engine runs, seen through its run folder and its status."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def endpoint(self) -> str:
        """HOST:PORT; "" while there is no server."""
        return read_endpoint(self.folder / "endpoint")

    def status(self) -> Status | None:
        """None while no server replies."""
        if not (endpoint := self.endpoint()):
            return None
        try:
            return status_of(endpoint, timeout_seconds=REPLY_SECONDS, keys=self._keys()).status
        except (ServerUnreachable, RequestRefused):
            return None

    def wait_for_status(self) -> Status:
        return self.wait(lambda status: True, "a status")

    def wait_for_push(self, *, within_seconds: float) -> None:
        self.wait(lambda status: status.updates > 0, "the first push", within_seconds)

    def wait_for_workers(self, count: int) -> None:
        """Wait until just so many workers are alive, and each of them pushes."""
        first: dict[str, int] = {}

        def all_push(status: Status) -> bool:
            alive = {worker.worker_id: worker.pushes for worker in status.workers if worker.alive}
            if len(alive) != count:
                first.clear()
                return False
            for name, pushes in alive.items():
                first.setdefault(name, pushes)
            return all(pushes > first[name] for name, pushes in alive.items())

        self.wait(all_push, f"{count} workers that push")

    def wait_until_gone(self, worker: str) -> None:
        """Wait until the server does not count it any more."""
        self.wait(lambda status: worker not in alive_in(status), f"the end of {worker}")

    def wait_until_back(self, worker: str, *, was: Status) -> None:
        """Wait until it has pushed since that status, which is of the same server. A new process counts from 0."""
        before = pushes_in(was).get(worker, 0)
        self.wait(lambda status: pushes_in(status).get(worker, 0) not in (0, before), f"a push of {worker}")

    def wait(self, condition: Callable[[Status], bool], what: str, within_seconds: float = DEADLINE_SECONDS) -> Status:
        """The first status for which the condition holds."""
        deadline = time.monotonic() + within_seconds
        status = None
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and condition(status):
                return status
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"not within {within_seconds:.0f} s: {what}; the last status: {status}")

    def _keys(self) -> ClientKeys | None:
        keys = self.folder / "keys"
        if not (keys / "admin.key_secret").exists():
            return None
        flags = CurveFlags(curve_server_key=keys / "server.key", curve_secret=keys / "admin.key_secret")
        return flags.client_keys()


class CountedRun(Run):
    """A run without keys, of workers that count. `folder` is its own; `programs` is a folder of the programs to run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "run")
        self.programs = folder / "bin"
        self._folder = folder
        self.programs.mkdir(parents=True)
        real = Path(sys.executable).parent
        for program in ("ps-server", "ps-ctl"):
            (self.programs / program).symlink_to(real / program)
        script = self.programs / "rl-worker"
        script.write_text(
            "#!/bin/sh\n"
            "# rl-worker --server ADDRESS --name NAME, and NAME ends with _NUMBER; nice, since it pushes without end\n"
            f'exec nice {sys.executable} -m benchmarks.trials.swarm "$2" "${{4##*_}}" 1 {COUNTED_WORKERS} '
            f'"{folder}/counters-$4-$$" "{folder}/stop"\n'
        )
        script.chmod(0o755)

    def counting_worker(self, number: int) -> tuple[str, ...]:
        """Arguments of benchmarks/trials/swarm.py for a worker that no engine starts."""
        counters = self._folder / f"counters-outside_{number}-0"
        where = (str(self.folder / "endpoint"), str(number), "1", str(COUNTED_WORKERS))
        return (*where, str(counters), str(self._folder / "stop"))

    def check(self) -> str:
        """Stop pushing, and compare the weights with what the workers have noted. Returns the counts as text."""
        wait_for(self._is_acknowledged, within_seconds=DEADLINE_SECONDS)
        lost = doubled = acknowledged = 0

        def none_lost() -> bool:
            nonlocal lost, doubled, acknowledged
            begun, done = self._noted()
            counted = weights_of(self.endpoint(), COUNTED_WORKERS).numpy().astype(np.int64)
            lost, doubled = int(np.maximum(done - counted, 0).sum()), int(np.maximum(counted - begun, 0).sum())
            acknowledged = int(done.sum())
            return not lost

        wait_for(none_lost)
        assert acknowledged > 0
        assert not doubled, f"{doubled} of {acknowledged} pushes count twice"
        return f"{acknowledged} pushes acknowledged, lost=0, doubled=0"

    def _is_acknowledged(self) -> bool:
        """Whether the workers that live have stopped, with nothing in flight."""
        (self._folder / "stop").touch()
        before = self._noted()[0].sum()
        time.sleep(1)
        return bool(before == self._noted()[0].sum())

    def _noted(self) -> tuple[np.ndarray, np.ndarray]:
        """Pushes begun and acknowledged by each worker, in all its lives: [COUNTED_WORKERS] each."""
        counts = np.zeros((COUNTED_WORKERS, 2), dtype=np.int64)
        for path in self._folder.glob("counters-*"):
            number = int(path.name.split("-")[-2].rpartition("_")[2])
            if path.stat().st_size:
                counts[number] += counters_in(path)[0]
        return counts[:, 0], counts[:, 1]


def pushes_in(status: Status) -> dict[str, int]:
    """Applied pushes by worker, of all workers that this server has had."""
    return {worker.worker_id: worker.pushes for worker in status.workers}


def alive_in(status: Status) -> set[str]:
    return {worker.worker_id for worker in status.workers if worker.alive}
