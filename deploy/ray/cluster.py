"""
A Ray cluster on one machine, for the scenario: each node is a network namespace with its own raylet.

Needs root and iproute2. A node loses its power when all processes in its namespace are killed; others may join.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.trials.hosts import Host, Hosts
from tests.integration.processes import wait_for

PORT = 6379
START_SECONDS = 300.0
ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "240"}
CPUS = 3  # of each node but the head, which has none: no actor is placed there


class Cluster:
    """A head and the nodes that were added."""

    def __init__(self, folder: Path, *, most_nodes: int) -> None:
        self._folder = folder
        self._raylets: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts = Hosts(1 + most_nodes)
        self.head, *nodes = self._hosts.hosts
        self._nodes = {f"n{number}": host for number, host in enumerate(nodes, 1)}
        try:
            self._start("head", self.head, "--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")
        except BaseException:
            self.end()
            raise

    @property
    def address(self) -> str:
        return f"{self.head.address}:{PORT}"

    def add(self, name: str) -> None:
        """A node, which may have lost its power before."""
        self._start(name, self._nodes[name], f"--address={self.address}", f"--num-cpus={CPUS}")

    def name_of(self, address: str) -> str:
        """The node with this address, HOST:PORT."""
        return next(name for name, host in self._nodes.items() if address.startswith(f"{host.address}:"))

    def power_off(self, name: str) -> None:
        """Kill everything on a node, at once."""
        host = self.head if name == "head" else self._nodes[name]
        for pid in subprocess.check_output(["ip", "netns", "pids", host.name], text=True).split():
            if int(pid) != os.getpid():  # the scenario is on the head
                os.kill(int(pid), signal.SIGKILL)
        self._raylets.pop(name).wait()

    def cut(self, name: str) -> None:
        self._hosts.cut(self._nodes[name])

    def heal(self, name: str) -> None:
        self._hosts.heal(self._nodes[name])

    def end(self) -> None:
        for name in reversed(list(self._raylets)):
            self.power_off(name)
        self._hosts.remove()

    def _start(self, name: str, host: Host, *flags: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", f"--node-ip-address={host.address}", "--disable-usage-stats", "--block", *flags]
        log = self._folder / f"ray-{name}.out"
        with log.open("wb") as output:
            self._raylets[name] = subprocess.Popen(
                [*host.prefix, *command],
                stdout=output,
                stderr=output,
                env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )

        def runs() -> bool:
            assert self._raylets[name].poll() is None, log.read_text(errors="replace")
            return "Ray runtime started" in log.read_text(errors="replace")

        wait_for(runs, within_seconds=START_SECONDS)  # one after another: on a busy machine two at once take too long


@contextmanager
def cluster_in(folder: Path, *, most_nodes: int) -> Iterator[Cluster]:
    """Ends with the block, and leaves no process."""
    cluster = Cluster(folder, most_nodes=most_nodes)
    try:
        yield cluster
    finally:
        cluster.end()
