"""
Integer chaos: small workers each count in a weight of their own, over a network that loses, duplicates, delays and
reorders messages, while workers and server are killed with SIGKILL at random moments, or workers asked to leave. At the
end the weights must equal the counts, and the accounts of the ledger the steps, of which a part is of pushes without a
gradient.

Run it as a module, with sizes in the environment: SEED=, KILLS=, SWARM= (workers that die together), SHARDS= (servers
that hold a range of the weights each; any of them is killed, and at the end two others go on with the run), GANG=
(processes of a gang: gangs are in the place of swarms, and each process counts). It prints one line of figures and
exits with a status other than 0 if a push was lost or applied twice.
"""

import random
import sys
from collections.abc import Callable

from benchmarks.trials.counted_run import CountedRun, Servers
from benchmarks.trials.counting import Swarm, broken, whole
from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from benchmarks.trials.proxy import Faults, Proxy
from tests.integration.processes import Programs, status_of, wait_for

SWARMS = 3  # at a time
UPDATES = (10, 200)  # between two kills; fewer where there are few connections, each of which waits for what is dropped


class Chaos:
    """One trial. `weights` bounds the number of workers, since each has a weight of its own."""

    def __init__(
        self, programs: Programs, *, seed: int, swarm: int, weights: int, shards: int, are_gangs: bool
    ) -> None:
        self._programs, self._random = programs, random.Random(seed)
        self._proxies: list[Proxy] = []
        servers = Servers(programs, shards=shards, seen_at=self._proxied)
        self._run = CountedRun(programs, servers, size=swarm, weights=weights, shards=shards, are_gangs=are_gangs)
        self._kinds: dict[str, Callable[[], None]] = {"server": self._kill_server, "swarm": self._kill_swarm}
        self._kinds |= {} if are_gangs else {"asked": self._ask_swarm}
        self._kills = dict.fromkeys(self._kinds, 0)
        self._left_badly = 0  # when they were asked
        for _ in range(SWARMS):
            self._run.swarms.start(self._random.choice(self._proxies).endpoint)
        for server, address in zip(servers.programs, servers.addresses, strict=True):
            wait_for(lambda address=address: status_of(address).version > 1, program=server)  # type: ignore[misc]

    def disturb(self) -> None:
        """Wait for some updates, cut up to two connections, then kill something of a kind: each once before chance."""
        connections = SWARMS * (self._run.swarms.size if "asked" in self._kinds else 1)
        self._run.grow(self._random.randrange(UPDATES[0], min(UPDATES[1], UPDATES[0] * (1 + connections))))
        for _ in range(self._random.randrange(3)):
            self._random.choice(self._proxies).cut()
        new = [kind for kind, kills in self._kills.items() if not kills]
        kind = new[0] if new else self._random.choice(list(self._kinds))
        self._kills[kind] += 1
        self._kinds[kind]()

    def figures(self) -> dict[str, int]:
        """The faults, and the final counts; with shards also how many weights differ when two servers go on."""
        counts = self._run.figures()
        if len(self._run.servers.programs) > 1:
            counts["differ_on_two"] = self._differ_on_two()
        for proxy in self._proxies:
            proxy.close()
        return {
            "workers": self._run.swarms.next,
            **{f"{kind}_kills": kills for kind, kills in self._kills.items()},
            "left_badly": self._left_badly,
            "cut": sum(proxy.cut_off for proxy in self._proxies),
            "dropped": sum(proxy.dropped for proxy in self._proxies),
            "duplicated": sum(proxy.doubled for proxy in self._proxies),
            **counts,
        }

    def _proxied(self, address: str) -> str:
        self._proxies.append(Proxy(address, Faults(), self._random.randrange(2**31)))
        return self._proxies[-1].endpoint

    def _differ_on_two(self) -> int:
        """End all servers in order, and compare their weights with those of two that go on with the run."""
        before = whole(self._run.servers.endpoint)
        for swarm in list(self._run.swarms.alive):
            self._run.swarms.kill(swarm)
        self._run.servers.end()
        if len(self._run.servers.programs) != 2:
            cut = self._programs.start("ps-ctl", "reshard", str(self._programs.folder / "run"), "--shards", "2")
            assert cut.wait() == 0, cut.output
        two = Servers(self._programs, shards=2, begin=("--resume",), seen_at=self._proxied)
        return int((whole(two.endpoint) != before).sum())

    def _kill_server(self) -> None:
        number = self._random.randrange(len(self._run.servers.programs))
        self._run.restart_server(number, after_seconds=self._random.uniform(0, 1.5))

    def _kill_swarm(self) -> None:
        self._anew(self._random.choice(self._run.swarms.alive))

    def _ask_swarm(self) -> None:
        self._anew(self._random.choice(self._run.swarms.alive), asks=True)

    def _anew(self, swarm: Swarm, *, asks: bool = False) -> Swarm:
        """End this swarm, and start another; some workers return under their old names, as new incarnations."""
        self._left_badly += not self._run.end_swarm(swarm, asks=asks)
        again = self._random.random() < 0.3 or self._run.swarms.is_full
        return self._run.swarms.start(self._random.choice(self._proxies).endpoint, swarm.first if again else None)


def trial(*, seed: int, kills: int, swarm: int, shards: int = 1, gang: int = 0) -> dict[str, int]:
    """Figures by name; `lost` and `doubled` must be 0."""
    if gang and shards > 1:
        sys.exit("GANG= and SHARDS=: statistics are at the last shard alone")
    size = gang or swarm
    with programs_of_a_trial() as programs:
        weights = size * (SWARMS + kills)
        chaos = Chaos(programs, seed=seed, swarm=size, weights=weights, shards=shards, are_gangs=gang > 0)
        for _ in range(kills):
            chaos.disturb()
        return {"seed": seed, "shards": shards, "gang": gang, **chaos.figures()}


def main() -> int:
    found = trial(**sizes(seed=0, kills=20, swarm=30, shards=1, gang=0))
    bounds = {
        "two shards go on with the same weights": found.get("differ_on_two", 0) > 0,
        "who is asked leaves in order": found["left_badly"] > 0,
    }
    return report(found, broken(found) | bounds)


if __name__ == "__main__":
    sys.exit(main())
