"""
The frame of the trials that count: servers of one run and swarms of workers, what may happen to them, and the figures.

A trial has its faults and its bounds, and nothing else. `CountedRun` does what every fault needs: a worker is gone when
its pushes are in a checkpoint and its steps are compared, and a server is back when its workers have resent theirs.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trials.counting import Ledger, Swarm, Swarms, rest
from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.protocol import messages
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.paths import shard_folder
from ps_common.sockets.request import ask
from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for

PATIENCE_SECONDS = 60.0


class Servers:
    """The servers of a run, one for each shard, at addresses that stay; and what they have on disk."""

    def __init__(
        self,
        programs: Programs,
        *flags: str,
        shards: int = 1,
        begin: tuple[str, ...] = ("--run-dir",),
        resume: tuple[str, ...] = ("--resume",),
        seen_at: Callable[[str], str] = str,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`begin` and `resume` stand before the run folder; `seen_at`: where workers find a server of an address."""
        self._programs, self._flags, self._resume = programs, flags, resume
        self._run, self._shards = programs.folder / "run", shards
        self._at: Any = {"host": host, "prefix": prefix}
        self.addresses = [f"{host}:{port}" for port in free_ports(shards)]
        self._seen = [seen_at(address) for address in self.addresses]
        self.programs = [self._start(number, begin) for number in range(shards)]

    @property
    def endpoint(self) -> str:
        return " ".join(self.addresses)

    def restart(self, number: int, *, after_seconds: float) -> None:
        """SIGKILL, and the same server again."""
        self.programs[number].kill()
        rest(after_seconds)
        self.programs[number] = self._start(number, self._resume)

    def end(self) -> None:
        for program in self.programs:
            program.process.terminate()
        for program in self.programs:
            program.wait()

    def save(self) -> list[Ledger]:
        """Wait for a checkpoint that begins now, at each server: the steps in its accounts, by worker."""
        for program, address in zip(self.programs, self.addresses, strict=True):
            try:
                ask(address, messages.CheckpointRequest(request=1), timeout_seconds=60)
            except (RequestRefused, ServerUnreachable) as error:
                raise AssertionError(f"no checkpoint: {error}\n{program.output[-2000:]}") from error
        records = [read_checkpoint(checkpoints_of(self._folder(number))[0])[1] for number in range(self._shards)]
        return [{name: account.unplayed for name, account in record.ledger.items()} for record in records]

    def _folder(self, number: int) -> Path:
        return shard_folder(self._run, number + 1, self._shards)

    def _start(self, number: int, before_folder: tuple[str, ...]) -> Program:
        place = ["--shard", f"{number + 1}/{self._shards}", "--shards", *self._seen] if self._shards > 1 else []
        flags = (*before_folder, str(self._run), "--checkpoint-seconds", "2", *self._flags, *place)
        port = int(self.addresses[number].rpartition(":")[2])
        return self._programs.start_server(*flags, run_dir=self._folder(number), port=port, **self._at)[0]


class CountedRun:
    """Servers and swarms."""

    def __init__(self, programs: Programs, servers: Servers, **swarms: Any) -> None:
        """`swarms`: what Swarms takes."""
        self.servers, self.swarms = servers, Swarms(programs, **swarms)

    @property
    def version(self) -> int:
        return status_of(self.servers.addresses[0]).version

    def grow(self, updates: int) -> None:
        """Wait for this number of updates."""
        goal = self.version + updates
        wait_for(lambda: self.version >= goal, within_seconds=120, program=self.servers.programs[0])

    def restart_server(self, number: int, *, after_seconds: float) -> None:
        """The guarantee holds for workers that outlive the crash: none may die before it has resent its pushes."""
        self.servers.restart(number, after_seconds=after_seconds)
        self.wait_until_resent()

    def end_swarm(self, swarm: Swarm, *, asks: bool = False) -> bool:
        """Kill a swarm, or ask it to leave: whether it left in order. The servers may be killed afterwards."""
        is_in_order = not asks or self.swarms.ask_to_leave(swarm)
        if not asks:
            self.swarms.kill(swarm)
        self.swarms.note_steps(swarm, self.servers.save())
        return is_in_order

    def wait_until_resent(self) -> None:
        """Until the servers have every acknowledged push, for a while at most: what then lacks is lost."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            steps = self.swarms.steps_acknowledged()
            is_whole = self.swarms.are_in(self.servers.endpoint)
            ledgers = self.servers.save()
            if is_whole and all(ledger.get(name, 0) >= steps[name] for ledger in ledgers for name in steps):
                return
            rest(0.2)

    def figures(self) -> dict[str, int]:
        """The pushes of all, after the last ones."""
        self.swarms.stop()
        self.wait_until_resent()
        return self.swarms.figures(self.servers.endpoint, self.servers.save())
