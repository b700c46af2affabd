"""
Counting workers on virtual hosts, while cables are pulled, one direction is blocked, hosts vanish without a FIN,
processes are paused, and the server is killed. In a split the wire between the server and a standby breaks, and nothing
else, while a newcomer asks the standby first. At the end the weights must equal the counts, as in chaos.py.

Run it as root, as a module, with sizes in the environment: SEED=, EVENTS=, SWARM= (workers per host). Leases of dead
workers must expire in time, and leases of undisturbed workers must not. (chaos.py covers loss and delay: its proxy
needs no kernel modules.)
"""

import random
import re
import signal
import sys
import time

from benchmarks.trials.counted_run import CountedRun, Servers
from benchmarks.trials.counting import Swarm, broken, rest
from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from benchmarks.trials.hosts import Host, Hosts, inside
from tests.integration.processes import Program, Programs, status_of, wait_for

LEASE_SECONDS = 2.0
MOST_LEASE_SECONDS = 3.0  # from a worker's death to the expiry of its lease
LONGEST_SECONDS = 4.0  # of a cut or a pause: some last longer than the lease, some do not
WORKER_HOSTS = 3
SILENT = re.compile(r"worker-(\d+) has been silent")
FLAGS = ("--lease-seconds", str(LEASE_SECONDS))


class Partitions:
    """One trial: the first host runs the server, each of the others a swarm."""

    def __init__(self, programs: Programs, links: Hosts, *, seed: int, swarm: int, weights: int) -> None:
        self._programs = programs
        self._links = links
        self._head, self._second, *self._hosts = links.hosts[1:]  # the first is ours; the second has a standby at times
        self._random = random.Random(seed)
        # A standby that a split has left in its newest checkpoint was ended by this trial: nobody else has the run.
        resume = ("--take-back", "--resume")
        servers = Servers(programs, *FLAGS, resume=resume, host=self._head.address, prefix=self._head.prefix)
        self._run = CountedRun(programs, servers, size=swarm, weights=weights)
        self._endpoint = servers.endpoint
        self._on: dict[str, Swarm] = {
            host.name: self._run.swarms.start(self._endpoint, prefix=host.prefix) for host in self._hosts
        }
        self.events: dict[str, int] = {}
        self.longest_lease_seconds = 0.0
        self.ended_alive = 0  # expired leases of undisturbed workers
        self.promoted = 0  # standbys, though the server lived
        self._touched: set[int] = set()  # workers that the last event disturbed
        self._wait_for_all_workers()

    @property
    def _server(self) -> Program:
        return self._run.servers.programs[0]

    def event(self) -> None:
        """One failure of a host or of the server, and its recovery."""
        of_hosts = (self._cut, self._mute, self._deafen, self._vanish, self._pause_workers, self._split)
        host = self._random.choice(self._hosts)
        happens = self._random.choice((*of_hosts, self._pause_server, self._kill_server))
        name = happens.__name__.strip("_")
        self.events[name] = self.events.get(name, 0) + 1
        swarm = self._on[host.name]
        numbers = range(swarm.first, swarm.first + self._run.swarms.size) if happens in of_hosts else range(0)
        # TCP may still be recovering from the event before: after a cut it retransmits at intervals of seconds.
        touched, self._touched = {*numbers, *self._touched}, {*numbers}
        server, logged = self._server, len(self._server.output)
        happens(host)
        self._wait_for_all_workers()
        self._run.wait_until_resent()
        log = self._server.output[logged if self._server is server else 0 :]
        self.ended_alive += sum(int(number) not in touched for number in SILENT.findall(log))

    def figures(self) -> dict[str, float]:
        return {
            **self.events,
            "lease_seconds": self.longest_lease_seconds,
            "ended_alive": self.ended_alive,
            "promoted": self.promoted,
            **self._run.figures(),
        }

    # -- events -------------------------------------------------------------------------------------------------------

    def _cut(self, host: Host) -> None:
        self._links.cut(host)
        self._a_while()
        self._links.heal(host)

    def _mute(self, host: Host) -> None:
        """Block packets from the host to the server."""
        self._one_way(host, self._head)

    def _deafen(self, host: Host) -> None:
        """Block packets from the server to the host."""
        self._one_way(self._head, host)

    def _one_way(self, host: Host, towards: Host) -> None:
        self._links.mute(host, towards)
        self._a_while()
        self._links.unmute(host, towards)

    def _vanish(self, host: Host) -> None:
        """Power off: the workers' memory is lost, and no FIN is sent."""
        self._links.cut(host)
        self._kill_swarm(host)
        self._links.heal(host)
        self._replace_swarm(host, self._endpoint)

    def _split(self, host: Host) -> None:
        """The wire between the server and its standby breaks, for good after a while: newcomers ask the standby."""
        standby, second = self._start_standby()
        for one, other in ((self._head, self._second), (self._second, self._head)):
            self._links.mute(one, other)
        wait_for(lambda: self._phase() == "gone", program=self._server)
        self._kill_swarm(host)
        self._replace_swarm(host, f"{second},{self._endpoint}")
        self._wait_for_all_workers()
        self._a_while()
        for one, other in ((self._head, self._second), (self._second, self._head)):
            self._links.unmute(one, other)
        wait_for(lambda: self._phase() == "in sync", within_seconds=120, program=standby)
        self.promoted += status_of(second).phase != "standby"
        standby.kill()

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
        self._run.restart_server(0, after_seconds=self._random.uniform(0, 1.5))

    # -- helpers of the events ----------------------------------------------------------------------------------------

    def _kill_swarm(self, host: Host) -> None:
        """Its memory is lost."""
        others = self._run.swarms.size * (len(self._hosts) - 1)
        self._run.swarms.kill(self._on[host.name])
        began = time.monotonic()
        wait_for(lambda: self._alive() <= others, program=self._server)
        self.longest_lease_seconds = max(self.longest_lease_seconds, time.monotonic() - began)
        # Its acknowledged pushes must be durable before the server may be killed.
        self._run.swarms.note_steps(self._on[host.name], self._run.servers.save())

    def _replace_swarm(self, host: Host, servers: str) -> None:
        swarms = self._run.swarms
        first = self._on[host.name].first if swarms.is_full or self._random.random() < 0.3 else None
        self._on[host.name] = swarms.start(servers, first, prefix=host.prefix)

    def _start_standby(self) -> tuple[Program, str]:
        """A standby in sync, on its own host."""
        folder = self._programs.folder / f"standby-{sum(self.events.values())}"
        flags = ("--standby-of", self._endpoint, "--lease-seconds", str(LEASE_SECONDS))
        address, prefix = self._second.address, self._second.prefix
        standby, second = self._programs.start_server(*flags, run_dir=folder, host=address, prefix=prefix)
        wait_for(lambda: self._phase() == "in sync", within_seconds=120, program=standby)
        return standby, second

    def _phase(self) -> str:
        """That of the standby, as the server has it."""
        standby = status_of(self._endpoint).standby
        return "" if standby is None else standby.phase

    def _a_while(self) -> None:
        rest(self._random.uniform(0.3, LONGEST_SECONDS))

    def _alive(self) -> int:
        return status_of(self._endpoint).workers_alive

    def _wait_for_all_workers(self) -> None:
        everybody = self._run.swarms.size * len(self._hosts)
        wait_for(lambda: self._alive() == everybody, within_seconds=120, program=self._server)


def trial(*, seed: int, events: int, swarm: int) -> dict[str, float]:
    """Figures by name; `lost` and `doubled` must be 0."""
    links = Hosts(3 + WORKER_HOSTS)
    try:
        with programs_of_a_trial() as programs, inside(links.hosts[0]):
            partitions = Partitions(programs, links, seed=seed, swarm=swarm, weights=swarm * (WORKER_HOSTS + events))
            for _ in range(events):
                partitions.event()
            return {"seed": seed, "events": events, **partitions.figures()}
    finally:
        links.remove()


def main() -> int:
    found = trial(**sizes(seed=0, events=200, swarm=5))
    return report(
        found,
        {
            **broken(found),
            f"leases of the dead expire within {MOST_LEASE_SECONDS:g} s": found["lease_seconds"] > MOST_LEASE_SECONDS,
            "leases of undisturbed workers do not expire": found["ended_alive"] > 0,
            "no standby is promoted while the server lives": found["promoted"] > 0,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
