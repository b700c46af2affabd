"""
An upgrade under load: servers with standbys, and workers of this release, are replaced by those of the next one, server
by server and worker by worker, while every push is counted.

Run it as a module, with sizes in the environment: WORKERS=, SHARDS=, KILLS= (1: the server that leaves is killed
instead of asked, and so is the new one while workers are replaced). The next release is a copy of this checkout with a
higher version. The trial measures the longest time without an acknowledged push. No acknowledged push may be lost,
none may count twice, and at the end no program of the former release may serve or push.

The steps are those of docs/how-to/upgrade.md: the standby first, then a handover, then the former server as the new
standby; with shards, one after another; then workers, a few at a time.
"""

import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.trials import figures
from benchmarks.trials.counting import broken, compared, whole
from benchmarks.trials.swarm import counters_in
from ps_common import release
from ps_common.errors import ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.status import Status
from ps_common.sockets.request import ask
from tests.integration.processes import Program, Programs, free_ports, programs_in, status_of, wait_for

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("common", "ps_*", "rl_*")
VERSION = f'VERSION = "{release.VERSION}"'
MOST_SECONDS = 3.0  # without an acknowledged push
SWARMS = 4  # processes that have the workers; each is replaced at once
LOOK_SECONDS = 0.01
SAVE_SECONDS = 300.0
soon = partial(wait_for, within_seconds=300)  # under any load of the machine


def next_release(folder: Path) -> Path:
    """The next release, in a new folder."""
    for pattern in PACKAGES:
        for package in ROOT.glob(pattern):
            shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    said = folder / "common" / "ps_common" / "release.py"
    text = said.read_text(encoding="utf-8")
    assert VERSION in text, "the copy has to say another version"
    said.write_text(text.replace(VERSION, 'VERSION = "99.0.0"'), encoding="utf-8")
    return folder


@dataclass
class Swarm:
    """Workers of one process, the numbers of which begin with `first`."""

    first: int
    program: Program
    counters: Path
    stop: Path


@dataclass
class Server:
    """One shard: the address that serves it, that of its standby, and both programs."""

    number: int
    ports: list[int]
    programs: list[Program] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of the server and of its standby."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    def is_in_sync(self) -> bool:
        """Whether the standby follows, and may take over."""
        status = self.status(0)
        standby = status.standby if status is not None else None
        return standby is not None and standby.phase == "in sync"

    def is_copied(self, version: int) -> bool:
        """Whether the standby has everything up to this version."""
        status = self.status(1)
        return status is not None and status.version >= version

    def status(self, which: int) -> Status | None:
        """The status of the server, 0, or of its standby, 1; None where it says nothing for a while."""
        with suppress(ServerUnreachable):
            return status_of(self.addresses[which])
        return None

    def has_taken_over(self) -> bool:
        """Whether the standby serves the run."""
        status = self.status(1)
        return status is not None and status.phase == "serving"


class Upgrade:
    """One trial, from the first worker of this release to the last of the next."""

    def __init__(self, programs: Programs, *, workers: int, shards: int) -> None:
        self._programs = programs
        if workers < SWARMS:
            raise SystemExit(f"WORKERS={workers}: there are at least {SWARMS}, one in each process that is replaced")
        self._each = workers // SWARMS
        self._weights = 2 * self._each * SWARMS  # each worker of either release has its own
        self._after = False  # whether programs are started as those of the next release
        self._paths = [ROOT, next_release(programs.folder / "next")]
        self._servers = [Server(number, free_ports(2)) for number in range(1, shards + 1)]
        self._pairs = [",".join(server.addresses) for server in self._servers]
        self._started = 0
        for server in self._servers:
            server.programs = [self._start_server(server), self._start_standby(server)]
        self._all: list[Swarm] = []
        self._swarms = [self._start_swarm() for _ in range(SWARMS)]
        for server in self._servers:
            soon(server.is_in_sync, program=server.programs[1])
        self._longest, self._is_over = 0.0, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def servers(self, *, kill: bool) -> None:
        """Replace every server and standby."""
        self._after = True
        for server in self._servers:
            server.programs[1].process.terminate()
            server.programs[1].wait()
            server.programs[1] = self._start_standby(server)
            soon(server.is_in_sync, program=server.programs[1])
            self._hand_over(server, kill=kill)

    def workers(self, *, kill: bool) -> None:
        """Replace every worker, those of a process at once."""
        for number, former in enumerate(self._swarms):
            self._swarms[number] = self._start_swarm()
            self._leave(former)
            if kill and number == len(self._swarms) // 2:
                self._hand_over(self._servers[0], kill=True)

    def finish(self) -> dict[str, float]:
        """End the workers, and compare."""
        for swarm in self._swarms:
            swarm.stop.touch()
            soon(lambda swarm=swarm: self._is_acknowledged(swarm), program=swarm.program)  # type: ignore[misc]
        self._is_over.set()
        self._watch.join()
        endpoint = " ".join(server.addresses[0] for server in self._servers)
        begun, acknowledged = self._counted(0), self._counted(1)
        soon(lambda: (whole(endpoint).reshape(-1, self._weights) >= acknowledged).all())
        counted = whole(endpoint).astype(np.int64).reshape(-1, self._weights)
        with suppress(AssertionError):  # workers that have ended are members until their lease has ended, too
            wait_for(lambda: self._former() == 0)
        return {**compared(begun, acknowledged, counted), "seconds": self._longest, "former": self._former()}

    def _former(self) -> int:
        """How many servers, standbys and living workers are not of the next release."""
        statuses = [status_of(server.addresses[0]) for server in self._servers]
        said = [status.release for status in statuses]
        said += [status.standby.release for status in statuses if status.standby is not None]
        said += [worker.release for status in statuses for worker in status.workers if worker.alive]
        return sum(not release.is_newer(one) for one in said)

    def _hand_over(self, server: Server, *, kill: bool) -> None:
        """The standby takes over, and the former server comes back as its standby, of the next release."""
        leaving = server.programs[0]
        soon(server.is_in_sync, program=server.programs[1])
        if kill:
            leaving.kill()
        else:
            leaving.process.terminate()
        soon(server.has_taken_over, program=server.programs[1])
        leaving.wait()
        server.ports.reverse()
        server.programs.reverse()
        server.programs[1] = self._start_standby(server)
        soon(server.is_in_sync, program=server.programs[1])

    def _leave(self, swarm: Swarm) -> None:
        """The workers of a swarm push no more; the process is ended when everything is on disk and at the standbys."""
        swarm.stop.touch()
        soon(lambda: self._is_acknowledged(swarm), program=swarm.program)
        for server in self._servers:
            ask(server.addresses[0], messages.CheckpointRequest(request=1), timeout_seconds=SAVE_SECONDS)
            version = soon(lambda server=server: server.status(0)).version  # type: ignore[misc]
            soon(partial(server.is_copied, version), program=server.programs[1])
        swarm.program.kill()

    def _is_acknowledged(self, swarm: Swarm) -> bool:
        pushes = counters_in(swarm.counters)
        return np.array_equal(pushes[:, 0], pushes[:, 1])

    def _start_server(self, server: Server) -> Program:
        return self._start("ps-server", "--port", str(server.ports[0]), *self._place(server))

    def _start_standby(self, server: Server) -> Program:
        flags = ("--port", str(server.ports[1]), "--standby-of", server.addresses[0])
        return self._start("ps-server", *flags, *self._place(server)[:2])

    def _place(self, server: Server) -> tuple[str, ...]:
        """The flags of a new run folder, and of the place among the shards."""
        self._started += 1
        folder = ("--run-dir", str(self._programs.folder / f"run-{self._started}"))
        of = len(self._servers)
        return (*folder, "--shard", f"{server.number}/{of}", "--shards", *self._pairs) if of > 1 else folder

    def _start(self, name: str, *flags: str) -> Program:
        path = self._paths[self._after]
        variables = {"PYTHONPATH": f"{path}:{path / 'common'}:{ROOT}"}
        host = ("--host", "127.0.0.1") if name == "ps-server" else ()
        program = self._programs.start(name, *host, *flags, variables=variables)
        if name == "ps-server":
            soon(lambda: "listens on" in program.output, program=program)
        return program

    def _start_swarm(self) -> Swarm:
        first = len(self._all) * self._each
        counters, stop = (self._programs.folder / f"{what}-{first}" for what in ("counters", "stop"))
        sizes = (str(first), str(self._each), str(self._weights), str(counters), str(stop), str(len(self._servers)))
        program = self._start("benchmarks.trials.swarm", self._pairs[0], *sizes)
        soon(lambda: counters.exists() and counters.stat().st_size == 16 * self._each, program=program)
        swarm = Swarm(first, program, counters, stop)
        self._all.append(swarm)
        soon(lambda: (counters_in(counters)[:, 1] > 0).all(), program=program)
        return swarm

    def _counted(self, column: int) -> np.ndarray:
        """Pushes of all workers that were begun (0) or acknowledged (1)."""
        counts = np.zeros(self._weights, dtype=np.int64)
        for swarm in self._all:
            counts[swarm.first : swarm.first + self._each] = counters_in(swarm.counters)[:, column]
        return counts

    def _look(self) -> None:
        """The thread that measures how long no push was acknowledged."""
        newest, since = 0, time.monotonic()
        while not self._is_over.wait(LOOK_SECONDS):
            now, acknowledged = time.monotonic(), int(self._counted(1).sum())
            if acknowledged > newest:
                self._longest = max(self._longest, now - since)
                newest, since = acknowledged, now


def trial(*, workers: int, shards: int, kills: int) -> dict[str, float]:
    """Figures by name; `lost`, `doubled` and `former`, programs that are not of the next release, must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        upgrade = Upgrade(programs, workers=workers, shards=shards)
        upgrade.servers(kill=kills > 0)
        upgrade.workers(kill=kills > 0)
        return upgrade.finish()


def main() -> int:
    found = trial(**figures.sizes(workers=16, shards=1, kills=0))
    return figures.report(
        found,
        {
            **broken(found),
            f"pushes pause for {MOST_SECONDS:g} seconds at most": found["seconds"] > MOST_SECONDS,
            "every program is of the next release": found["former"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
