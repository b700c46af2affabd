"""
Integer chaos: small workers each count in a weight of their own, over a network that loses, duplicates, delays and
reorders messages, while workers and server are killed with SIGKILL at random moments. At the end the weights must equal
the counts.

Run it as a module, with sizes in the environment: SEED=, KILLS=, SWARM= (workers that die together), SHARDS= (servers
that hold a range of the weights each; any of them is killed, and at the end two others go on with the run). It prints
one line of figures and exits with a status other than 0 if a push was lost or applied twice.
"""

import random
import sys
import tempfile
from pathlib import Path

from benchmarks.trials import figures
from benchmarks.trials.counting import Swarms, broken, rest, whole
from benchmarks.trials.proxy import Faults, Proxy
from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.protocol import messages
from ps_common.run_folder.paths import shard_folder
from ps_common.sockets.request import ask
from tests.integration.processes import Program, Programs, free_ports, programs_in, status_of, wait_for

SWARMS = 3  # at a time


class Chaos:
    """One trial. `weights` bounds the number of workers, since each has a weight of its own."""

    def __init__(self, programs: Programs, *, seed: int, swarm: int, weights: int, shards: int) -> None:
        self._programs = programs
        self._random = random.Random(seed)
        self._run = programs.folder / "run"
        self._endpoints = [f"127.0.0.1:{port}" for port in free_ports(shards)]
        self._proxies = [Proxy(endpoint, Faults(), seed + at) for at, endpoint in enumerate(self._endpoints)]
        self._servers = [self._start(number, "--run-dir") for number in range(1, shards + 1)]
        self.swarms = Swarms(programs, size=swarm, weights=weights, shards=shards)
        self.server_kills = self.swarm_kills = 0
        for _ in range(SWARMS):
            self.swarms.start(self._random.choice(self._proxies).endpoint)
        for server, endpoint in zip(self._servers, self._endpoints, strict=True):
            wait_for(lambda endpoint=endpoint: status_of(endpoint).version > 1, program=server)  # type: ignore[misc]

    def figures(self) -> dict[str, int]:
        """The faults of the run so far."""
        return {
            "workers": self.swarms.next,
            "server_kills": self.server_kills,
            "swarm_kills": self.swarm_kills,
            "cut": sum(proxy.cut_off for proxy in self._proxies),
            "dropped": sum(proxy.dropped for proxy in self._proxies),
            "duplicated": sum(proxy.doubled for proxy in self._proxies),
        }

    def disturb(self) -> None:
        """Wait for some updates, cut up to two connections, then kill a server or a swarm: each once before chance."""
        self._grow(self._random.randrange(10, 200))
        for _ in range(self._random.randrange(3)):
            self._random.choice(self._proxies).cut()
        is_drawn = self.server_kills and self.swarm_kills
        if self._random.random() < 0.5 if is_drawn else not self.server_kills:
            self._kill_server()
        else:
            self._kill_swarm()

    def finish(self) -> dict[str, int]:
        """The final counts of pushes; with shards also how many weights differ when two servers go on with the run."""
        counts = self.swarms.finish(" ".join(self._endpoints))
        if len(self._servers) > 1:
            counts["differ_on_two"] = self._differ_on_two()
        for proxy in self._proxies:
            proxy.close()
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
        self.server_kills += 1
        rest(self._random.uniform(0, 1.5))
        self._servers[number] = self._start(number + 1, "--resume")
        # The guarantee holds for workers that outlive the crash: none may die before it has resent its pushes.
        self.swarms.wait_until_resent(" ".join(self._endpoints))

    def _kill_swarm(self) -> None:
        swarm = self._random.choice(self.swarms.alive)
        self.swarms.kill(swarm)
        self.swarm_kills += 1
        self._save()
        # Some workers return under their old names, as new incarnations.
        again = self._random.random() < 0.3 or self.swarms.is_full
        self.swarms.start(self._random.choice(self._proxies).endpoint, swarm.first if again else None)

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


def trial(*, seed: int, kills: int, swarm: int, shards: int = 1) -> dict[str, int]:
    """Figures by name; `lost` and `doubled` must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        chaos = Chaos(programs, seed=seed, swarm=swarm, weights=swarm * (SWARMS + kills), shards=shards)
        for _ in range(kills):
            chaos.disturb()
        counts = chaos.finish()
        return {"seed": seed, "shards": shards, **chaos.figures(), **counts}


def main() -> int:
    found = trial(**figures.sizes(seed=0, kills=20, swarm=30, shards=1))
    differ = {"two shards go on with the same weights": found.get("differ_on_two", 0) > 0}
    return figures.report(found, broken(found) | differ)


if __name__ == "__main__":
    sys.exit(main())
