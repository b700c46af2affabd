"""
An upgrade under load: servers with standbys, and workers of this release, are replaced by those of the next one, server
by server and worker by worker, while every push is counted.

Run it as a module, with sizes in the environment: WORKERS=, SHARDS=, KILLS= (1: the server that leaves is killed
instead of asked, and so is the new one while workers are replaced). The next release is a copy of this checkout with a
higher version. The trial measures the longest time without an acknowledged push, and how long a server that was asked
took to leave. No acknowledged push may be lost, none may count twice, and at the end no program of the former release
may serve or push.

The steps are those of docs/how-to/upgrade.md: the standby first, then a handover, then the former server as the new
standby; with shards, one after another; then workers, a few at a time.
"""

import shutil
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.trials.counting import Swarm, Swarms, broken
from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from ps_common import release
from ps_common.errors import ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.status import Status
from ps_common.sockets.request import ask
from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("common", "ps_*", "rl_*")
VERSION = f'VERSION = "{release.VERSION}"'
MOST_SECONDS = 3.0  # without an acknowledged push
MOST_TO_LEAVE = 2.0  # seconds of a server that is asked
SWARMS = 4  # processes that have the workers; each is replaced at once
LOOK_SECONDS = 0.01
PAUSE_SECONDS = 0.02  # between two pushes of a worker: a standby keeps up on a busy machine, too
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
class Pair:
    """One shard: the address that serves it, that of its standby, and both programs."""

    number: int
    ports: list[int]
    programs: list[Program] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of the server and of its standby."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    @property
    def standby(self) -> Program:
        return self.programs[1]

    def is_in_sync(self) -> bool:
        """Whether the standby follows, and may be promoted."""
        return getattr(getattr(self.status(0), "standby", None), "phase", "") == "in sync"

    def wait_until_in_sync(self) -> None:
        soon(self.is_in_sync, program=self.standby)

    def wait_until_copied(self) -> None:
        """The server has saved everything until now, and the standby has it too."""
        ask(self.addresses[0], messages.CheckpointRequest(request=1), timeout_seconds=SAVE_SECONDS)
        version = soon(lambda: self.status(0)).version
        soon(lambda: getattr(self.status(1), "version", 0) >= version, program=self.standby)

    def status(self, which: int) -> Status | None:
        """The status of the server, 0, or of its standby, 1; None where it says nothing for a while."""
        with suppress(ServerUnreachable):
            return status_of(self.addresses[which])
        return None


class Upgrade:
    """One trial, from the first worker of this release to the last of the next."""

    def __init__(self, programs: Programs, *, workers: int, shards: int) -> None:
        self._programs = programs
        if workers < SWARMS:
            raise SystemExit(f"WORKERS={workers}: there are at least {SWARMS}, one in each process that is replaced")
        size = workers // SWARMS
        self._after = False  # whether programs are started as those of the next release
        self._paths = [ROOT, next_release(programs.folder / "next")]
        self._pairs = [Pair(number, free_ports(2)) for number in range(1, shards + 1)]
        self._addresses = [",".join(pair.addresses) for pair in self._pairs]
        self._started = 0
        self._longest = self._longest_to_leave = 0.0
        for pair in self._pairs:
            pair.programs = [self._start_server(pair), self._start_standby(pair)]
        # Each worker of either release has a weight of its own.
        self._swarms = Swarms(programs, size=size, weights=2 * size * SWARMS, shards=shards)
        for _ in range(SWARMS):
            self._start_swarm()
        for pair in self._pairs:
            pair.wait_until_in_sync()
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def servers(self, *, kill: bool) -> None:
        """Replace every server and standby."""
        self._after = True
        for pair in self._pairs:
            pair.standby.process.terminate()
            soon(lambda pair=pair: not pair.is_in_sync(), program=pair.programs[0])  # type: ignore[misc]
            pair.programs[1] = self._start_standby(pair)
            self._hand_over(pair, kill=kill)

    def workers(self, *, kill: bool) -> None:
        """Replace every worker, those of a process at once."""
        for number, former in enumerate(list(self._swarms.alive)):
            self._start_swarm()
            self._leave(former)
            if kill and number == SWARMS // 2:
                self._hand_over(self._pairs[0], kill=True)

    def finish(self) -> dict[str, float]:
        """End the workers, and compare."""
        self._swarms.stop()
        self._is_over.set()
        self._watch.join()
        endpoint = " ".join(pair.addresses[0] for pair in self._pairs)
        with suppress(AssertionError):  # what lacks after that is lost
            wait_for(lambda: self._swarms.are_in(endpoint))
        with suppress(AssertionError):  # workers that have ended are members until their lease has ended, too
            wait_for(lambda: self._former() == 0)
        seconds = {"seconds": self._longest, "seconds_to_leave": self._longest_to_leave}
        return {**self._swarms.figures(endpoint), **seconds, "former": self._former()}

    def _former(self) -> int:
        """How many servers, standbys and living workers are not of the next release."""
        statuses = [status_of(pair.addresses[0]) for pair in self._pairs]
        said = [status.release for status in statuses]
        said += [status.standby.release for status in statuses if status.standby is not None]
        said += [worker.release for status in statuses for worker in status.workers if worker.alive]
        return sum(not release.is_newer(one) for one in said)

    def _hand_over(self, pair: Pair, *, kill: bool) -> None:
        """The standby is promoted, and the former server comes back as its standby, of the next release."""
        leaving = pair.programs[0]
        pair.wait_until_in_sync()
        began = time.monotonic()
        if kill:
            leaving.kill()
        else:
            leaving.process.terminate()
            assert leaving.wait() == 0, leaving.output[-2000:]
            self._longest_to_leave = max(self._longest_to_leave, time.monotonic() - began)
        soon(lambda: getattr(pair.status(1), "phase", "") == "serving", program=pair.standby)
        pair.ports.reverse()
        pair.programs.reverse()
        pair.programs[1] = self._start_standby(pair)
        pair.wait_until_in_sync()

    def _leave(self, swarm: Swarm) -> None:
        """The workers of a swarm push no more; the process is ended when everything is on disk and at the standbys."""
        swarm.stop.touch()
        soon(swarm.is_done, program=swarm.program)
        for pair in self._pairs:
            pair.wait_until_copied()
        self._swarms.kill(swarm)

    def _start_server(self, pair: Pair) -> Program:
        place = ("--shard", f"{pair.number}/{len(self._pairs)}", "--shards", *self._addresses)
        return self._start(pair.ports[0], *(place if len(self._pairs) > 1 else ()))

    def _start_standby(self, pair: Pair) -> Program:
        return self._start(pair.ports[1], "--standby-of", pair.addresses[0])

    def _start(self, port: int, *flags: str) -> Program:
        """A server with a new run folder."""
        self._started += 1
        run = self._programs.folder / f"run-{self._started}"
        where = ("--host", "127.0.0.1", "--port", str(port), "--run-dir", str(run))
        program = self._programs.start("ps-server", *where, *flags, variables=self._variables())
        soon(lambda: "listens on" in program.output, program=program)
        return program

    def _start_swarm(self) -> None:
        swarm = self._swarms.start(self._addresses[0], variables=self._variables())
        soon(swarm.has_pushed, program=swarm.program)

    def _variables(self) -> dict[str, str]:
        path = self._paths[self._after]
        return {"PYTHONPATH": f"{path}:{path / 'common'}:{ROOT}", "PAUSE_SECONDS": str(PAUSE_SECONDS)}

    def _look(self) -> None:
        """The thread that measures how long no push was acknowledged."""
        newest, since = 0, time.monotonic()
        while not self._is_over.wait(LOOK_SECONDS):
            now, acknowledged = time.monotonic(), int(self._swarms.counted(1).sum())
            if acknowledged > newest:
                self._longest = max(self._longest, now - since)
                newest, since = acknowledged, now


def trial(*, workers: int, shards: int, kills: int) -> dict[str, float]:
    """Figures by name; `lost`, `doubled` and `former`, programs that are not of the next release, must be 0."""
    with programs_of_a_trial() as programs:
        upgrade = Upgrade(programs, workers=workers, shards=shards)
        upgrade.servers(kill=kills > 0)
        upgrade.workers(kill=kills > 0)
        return upgrade.finish()


def main() -> int:
    found = trial(**sizes(workers=16, shards=1, kills=0))
    return report(
        found,
        {
            **broken(found),
            f"pushes pause for {MOST_SECONDS:g} seconds at most": found["seconds"] > MOST_SECONDS,
            f"a server leaves within {MOST_TO_LEAVE:g} seconds": found["seconds_to_leave"] > MOST_TO_LEAVE,
            "every program is of the next release": found["former"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
