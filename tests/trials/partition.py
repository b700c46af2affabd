"""
Workers on hosts of their own that count, while cables are pulled, one direction goes silent, hosts vanish without a
FIN, processes are paused, and the server is killed. At the end the weights must be the counts, as in chaos.py.

Run it as root, as a module, with sizes in the environment: SEED=, EVENTS=, SWARM= (workers of a host). The leases of
the dead end in time, and no others. (Loss and delay: chaos.py, whose proxy needs no modules of the kernel.)
"""

import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from common.protocol import messages
from common.sockets.request import ask
from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for
from tests.trials import figures
from tests.trials.counting import Swarm, Swarms, broken, rest
from tests.trials.hosts import Host, Hosts, inside

LEASE_SECONDS = 2.0
MOST_LEASE_SECONDS = 3.0  # from a worker's end to that of its lease
LONGEST_SECONDS = 4.0  # of a cut or a pause: some outlast the lease, some do not
WORKER_HOSTS = 3
SILENT = re.compile(r"worker-(\d+) has been silent")
FLAGS = ("--checkpoint-seconds", "2", "--lease-seconds", str(LEASE_SECONDS))


class Partitions:
    """One trial: the first host has the server, each of the others a swarm."""

    def __init__(self, programs: Programs, links: Hosts, *, seed: int, swarm: int, weights: int) -> None:
        self._programs = programs
        self._links = links
        self._head, *self._hosts = links.hosts[1:]  # the first is ours
        self._random = random.Random(seed)
        self._server, self._endpoint = self._start_server()
        self._swarms = Swarms(programs, size=swarm, weights=weights)
        self._on: dict[str, Swarm] = {host.name: self._started_on(host) for host in self._hosts}
        self.events: dict[str, int] = {}
        self.longest_lease_seconds = 0.0
        self.ended_alive = 0  # leases of workers that nothing was done to
        self._touched: set[int] = set()  # workers that something was done to in the last event
        self._until_all_are_there()

    def event(self) -> None:
        """Something happens to a host, or to the server, and is over."""
        of_hosts = (self._cut, self._mute, self._deafen, self._vanish, self._pause_workers)
        host = self._random.choice(self._hosts)
        happens = self._random.choice((*of_hosts, self._pause_server, self._kill_server))
        name = happens.__name__.strip("_")
        self.events[name] = self.events.get(name, 0) + 1
        swarm = self._on[host.name]
        numbers = range(swarm.first, swarm.first + self._swarms.size) if happens in of_hosts else range(0)
        # TCP is still getting over what happened before: after a cut it sends again in pauses of seconds.
        touched, self._touched = {*numbers, *self._touched}, {*numbers}
        server, heard = self._server, len(self._server.output)
        happens(host)
        self._until_all_are_there()
        self._swarms.until_nothing_is_missing(self._endpoint)
        told = self._server.output[heard if self._server is server else 0 :]
        self.ended_alive += sum(int(number) not in touched for number in SILENT.findall(told))

    def finish(self) -> dict[str, int]:
        return self._swarms.finish(self._endpoint)

    # -- what may happen ----------------------------------------------------------------------------------------------

    def _cut(self, host: Host) -> None:
        self._links.cut(host)
        self._a_while()
        self._links.heal(host)

    def _mute(self, host: Host) -> None:
        """The server does not hear it any more."""
        self._one_way(host, self._head)

    def _deafen(self, host: Host) -> None:
        """It does not hear the server any more."""
        self._one_way(self._head, host)

    def _one_way(self, host: Host, towards: Host) -> None:
        self._links.mute(host, towards)
        self._a_while()
        self._links.unmute(host, towards)

    def _vanish(self, host: Host) -> None:
        """As if its plug was pulled: what it held is gone, and no FIN tells of it."""
        others = self._swarms.size * (len(self._hosts) - 1)
        self._links.cut(host)
        self._swarms.kill(self._on[host.name])
        began = time.monotonic()
        wait_for(lambda: self._alive() <= others, program=self._server)
        self.longest_lease_seconds = max(self.longest_lease_seconds, time.monotonic() - began)
        # What it was told of has to be on disk before the server may be killed.
        ask(self._endpoint, messages.CheckpointRequest(request=1), timeout_seconds=60)
        self._links.heal(host)
        first = self._on[host.name].first if self._swarms.is_full or self._random.random() < 0.3 else None
        self._on[host.name] = self._started_on(host, first)

    def _pause_workers(self, host: Host) -> None:
        swarm = self._on[host.name]
        swarm.program.signal(signal.SIGSTOP)
        self._a_while()
        swarm.program.signal(signal.SIGCONT)

    def _pause_server(self, _: Host) -> None:
        self._server.signal(signal.SIGSTOP)
        self._a_while()
        self._server.signal(signal.SIGCONT)

    def _kill_server(self, _: Host) -> None:
        port = int(self._endpoint.rpartition(":")[2])
        self._server.kill()
        rest(self._random.uniform(0, 1.5))
        self._server, _ = self._start_server("--resume", str(self._programs.folder / "run"), port=port)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _start_server(self, *flags: str, port: int = 0) -> tuple[Program, str]:
        return self._programs.start_server(*flags, *FLAGS, host=self._head.address, port=port, prefix=self._head.prefix)

    def _started_on(self, host: Host, first: int | None = None) -> Swarm:
        return self._swarms.start(self._endpoint, first, prefix=host.prefix)

    def _a_while(self) -> None:
        rest(self._random.uniform(0.3, LONGEST_SECONDS))

    def _alive(self) -> int:
        return status_of(self._endpoint).workers_alive

    def _until_all_are_there(self) -> None:
        everybody = self._swarms.size * len(self._hosts)
        wait_for(lambda: self._alive() == everybody, within_seconds=120, program=self._server)


def trial(*, seed: int, events: int, swarm: int) -> dict[str, float]:
    """Figures by name; `lost` and `doubled` must be 0."""
    links = Hosts(2 + WORKER_HOSTS)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            programs_in(Path(folder)) as programs,
            inside(links.hosts[0]),
        ):
            partitions = Partitions(programs, links, seed=seed, swarm=swarm, weights=swarm * (WORKER_HOSTS + events))
            for _ in range(events):
                partitions.event()
            counts = partitions.finish()
            return {
                "seed": seed,
                "events": events,
                **partitions.events,
                "lease_seconds": partitions.longest_lease_seconds,
                "ended_alive": partitions.ended_alive,
                **counts,
            }
    finally:
        links.remove()


def main() -> int:
    told = trial(**figures.sizes(seed=0, events=200, swarm=5))
    return figures.told(
        told,
        {
            **broken(told),
            f"the dead are gone within {MOST_LEASE_SECONDS:g} s": told["lease_seconds"] > MOST_LEASE_SECONDS,
            "the living are not": told["ended_alive"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
