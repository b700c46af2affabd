"""
Integer chaos: small workers each count in a weight of their own, over a network that loses, duplicates, delays and
reorders messages, while workers and server are killed with SIGKILL at random moments. At the end the weights must equal
the counts.

Run it as a module, with sizes in the environment: SEED=, KILLS=, SWARM= (workers that die together), SHARDS= (servers
that hold a range of the weights each; any of them is killed, and at the end two others go on with the run), GANG=
(processes of a gang: gangs are in the place of swarms, each process counts, and members are killed or stopped, too). It
prints one line of figures and exits with a status other than 0 if a push was lost or applied twice.
"""

import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.trials import figures
from benchmarks.trials.counting import Swarm, Swarms, broken, rest, whole
from benchmarks.trials.gang import MEMBER
from benchmarks.trials.proxy import Faults, Proxy
from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.program.supervision import MOST_DEATHS
from ps_common.protocol import messages
from ps_common.run_folder.paths import shard_folder
from ps_common.sockets.request import ask
from tests.integration.processes import (
    Program,
    Programs,
    children_with,
    free_ports,
    programs_in,
    status_of,
    wait_for,
)

SWARMS = 3  # at a time
UPDATES = (10, 200)  # between two kills; fewer where there are few connections, each of which waits for what is dropped


class Chaos:
    """One trial. `weights` bounds the number of workers, since each has a weight of its own."""

    def __init__(
        self, programs: Programs, *, seed: int, swarm: int, weights: int, shards: int, are_gangs: bool
    ) -> None:
        self._programs = programs
        self._random = random.Random(seed)
        self._run = programs.folder / "run"
        self._endpoints = [f"127.0.0.1:{port}" for port in free_ports(shards)]
        self._proxies = [Proxy(endpoint, Faults(), seed + at) for at, endpoint in enumerate(self._endpoints)]
        self._servers = [self._start(number, "--run-dir") for number in range(1, shards + 1)]
        self.swarms = Swarms(programs, size=swarm, weights=weights, shards=shards, are_gangs=are_gangs)
        self._kinds: dict[str, Callable[[], None]] = {"server": self._kill_server, "swarm": self._kill_swarm}
        self._kinds |= {"member": self._kill_member, "pause": self._pause_member} if are_gangs else {}
        self._kills = dict.fromkeys(self._kinds, 0)
        self._paused: list[psutil.Process] = []  # members
        self._member_deaths = Counter[Path]()  # of a gang, which gives up after MOST_DEATHS in quick succession
        for _ in range(SWARMS):
            self.swarms.start(self._random.choice(self._proxies).endpoint)
        for server, endpoint in zip(self._servers, self._endpoints, strict=True):
            wait_for(lambda endpoint=endpoint: status_of(endpoint).version > 1, program=server)  # type: ignore[misc]

    def figures(self) -> dict[str, int]:
        """The faults of the run so far."""
        return {
            "workers": self.swarms.next,
            **{f"{kind}_kills": kills for kind, kills in self._kills.items()},
            "cut": sum(proxy.cut_off for proxy in self._proxies),
            "dropped": sum(proxy.dropped for proxy in self._proxies),
            "duplicated": sum(proxy.doubled for proxy in self._proxies),
        }

    def disturb(self) -> None:
        """Wait for some updates, cut up to two connections, then kill something of a kind: each once before chance."""
        connections = SWARMS * (1 if "member" in self._kinds else self.swarms.size)
        self._grow(self._random.randrange(UPDATES[0], min(UPDATES[1], UPDATES[0] * (1 + connections))))
        for _ in range(self._random.randrange(3)):
            self._random.choice(self._proxies).cut()
        new = [kind for kind, kills in self._kills.items() if not kills]
        kind = new[0] if new else self._random.choice(list(self._kinds))
        self._kills[kind] += 1
        self._kinds[kind]()

    def finish(self) -> dict[str, int]:
        """The final counts of pushes; with shards also how many weights differ when two servers go on with the run."""
        counts = self.swarms.finish(" ".join(self._endpoints))
        if len(self._servers) > 1:
            counts["differ_on_two"] = self._differ_on_two()
        for proxy in self._proxies:
            proxy.close()
        for member in self._paused:
            with suppress(psutil.NoSuchProcess):
                member.kill()  # a process that is stopped outlives its killed speaker
        return counts

    def _differ_on_two(self) -> int:
        """End all servers in order, and compare their weights with those of two that go on with the run."""
        before = whole(" ".join(self._endpoints))
        for swarm in list(self.swarms.alive):
            self.swarms.kill(swarm)
        for server in self._servers:
            server.process.terminate()
        for server in self._servers:
            server.wait()
        if len(self._servers) != 2:
            assert (cut := self._programs.start("ps-ctl", "reshard", str(self._run), "--shards", "2")).wait() == 0, cut
        self._endpoints = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self._proxies += [Proxy(endpoint, Faults(), 0) for endpoint in self._endpoints]
        self._servers = [self._start(number, "--resume") for number in (1, 2)]
        return int((whole(" ".join(self._endpoints)) != before).sum())

    def _start(self, number: int, run: str) -> Program:
        """Start the server of this number, or the only one, with its run folder given by the flag `run`."""
        of = len(self._endpoints)
        addresses = [proxy.endpoint for proxy in self._proxies[-of:]]
        place = ["--shard", f"{number}/{of}", "--shards", *addresses] if of > 1 else []
        folder = shard_folder(self._run, number, of)
        (folder / "endpoint").unlink(missing_ok=True)
        port = self._endpoints[number - 1].rpartition(":")[2]
        flags = ["--host", "127.0.0.1", "--port", port, run, str(self._run), "--checkpoint-seconds", "2", *place]
        program = self._programs.start("ps-server", *flags)
        wait_for(lambda: (folder / "endpoint").exists(), within_seconds=120, program=program)
        return program

    def _kill_server(self) -> None:
        number = self._random.randrange(len(self._servers))
        self._servers[number].kill()
        rest(self._random.uniform(0, 1.5))
        self._servers[number] = self._start(number + 1, "--resume")
        # The guarantee holds for workers that outlive the crash: none may die before it has resent its pushes.
        self.swarms.wait_until_resent(" ".join(self._endpoints))

    def _kill_swarm(self) -> None:
        self._anew(self._random.choice(self.swarms.alive))

    def _anew(self, swarm: Swarm) -> Swarm:
        """Kill this swarm, and start another."""
        self.swarms.kill(swarm)
        self._save()
        # Some workers return under their old names, as new incarnations.
        again = self._random.random() < 0.3 or self.swarms.is_full
        return self.swarms.start(self._random.choice(self._proxies).endpoint, swarm.first if again else None)

    def _kill_member(self) -> None:
        self._signal_member(signal.SIGKILL)

    def _pause_member(self) -> None:
        """Stop one until its gang gives it up, and kills it."""
        self._paused.append(self._signal_member(signal.SIGSTOP))

    def _signal_member(self, number: signal.Signals) -> psutil.Process:
        """No checkpoint is waited for: what the member has contributed is in the resend buffer of its speaker."""
        gang = self._random.choice(self.swarms.alive)
        self._member_deaths[gang.counters] += 1
        if self._member_deaths[gang.counters] == MOST_DEATHS:
            gang = self._anew(gang)
        members = wait_for(lambda: children_with(MEMBER, gang.program.process.pid), program=gang.program)
        member: psutil.Process = self._random.choice(members)
        member.send_signal(number)
        return member

    def _save(self) -> None:
        """Wait for a checkpoint that begins now, at each server."""
        for server, endpoint in zip(self._servers, self._endpoints, strict=True):
            try:
                ask(endpoint, messages.CheckpointRequest(request=1), timeout_seconds=60)
            except (RequestRefused, ServerUnreachable) as error:
                raise AssertionError(f"no checkpoint: {error}\n{server.output[-2000:]}") from error

    def _grow(self, updates: int) -> None:
        first, server = self._endpoints[0], self._servers[0]
        goal = status_of(first).version + updates
        wait_for(lambda: status_of(first).version >= goal, within_seconds=120, program=server)


def trial(*, seed: int, kills: int, swarm: int, shards: int = 1, gang: int = 0) -> dict[str, int]:
    """Figures by name; `lost` and `doubled` must be 0."""
    if gang and shards > 1:
        sys.exit("GANG= and SHARDS=: statistics are at the last shard alone")
    size = gang or swarm
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        weights = size * (SWARMS + kills)
        chaos = Chaos(programs, seed=seed, swarm=size, weights=weights, shards=shards, are_gangs=gang > 0)
        for _ in range(kills):
            chaos.disturb()
        counts = chaos.finish()
        return {"seed": seed, "shards": shards, "gang": gang, **chaos.figures(), **counts}


def main() -> int:
    found = trial(**figures.sizes(seed=0, kills=20, swarm=30, shards=1, gang=0))
    differ = {"two shards go on with the same weights": found.get("differ_on_two", 0) > 0}
    return figures.report(found, broken(found) | differ)


if __name__ == "__main__":
    sys.exit(main())
