"""Several hosts: network namespaces joined by veth pairs. Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.processes import Programs, wait_for

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and the program `ip`"
)


@dataclass(frozen=True)
class Host:
    """A network namespace on the test's bridge."""

    name: str
    address: str
    link: str  # the bridge's end of its cable

    @property
    def prefix(self) -> tuple[str, ...]:
        """Put before a command, it runs on this host."""
        return ("ip", "netns", "exec", self.name)


class Hosts:
    """Hosts on one bridge, which lives in a namespace of its own so that the machine stays untouched."""

    def __init__(self, count: int) -> None:
        self._bridge = f"psbr{os.getpid()}"
        self._names: list[str] = []
        ip("netns", "add", self._bridge)
        self._names.append(self._bridge)
        ip("-n", self._bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self._bridge, "link", "set", "br0", "up")
        self.hosts = [self._add(number) for number in range(1, count + 1)]

    def _add(self, number: int) -> Host:
        host = Host(f"psh{number}-{os.getpid()}", f"10.211.0.{number}", f"v{number}")
        ip("netns", "add", host.name)
        self._names.append(host.name)
        ip("link", "add", host.link, "netns", self._bridge, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        ip("-n", self._bridge, "link", "set", host.link, "master", "br0", "up")
        ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.name, "link", "set", "eth0", "up")
        ip("-n", host.name, "link", "set", "lo", "up")
        return host

    def cut(self, host: Host) -> None:
        """Pull its cable."""
        ip("-n", self._bridge, "link", "set", host.link, "down")

    def heal(self, host: Host) -> None:
        """Plug it in again."""
        ip("-n", self._bridge, "link", "set", host.link, "up")

    def remove(self) -> None:
        for name in self._names:
            ip("netns", "del", name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    try:
        made = Hosts(3)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode()}")
    try:
        yield made
    finally:
        made.remove()


def test_workers_on_other_hosts_need_only_the_command_that_the_server_prints(programs: Programs, hosts: Hosts) -> None:
    head, *others = hosts.hosts
    flags = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000", "--lease-seconds", "2"]
    server = programs.start("ps-server", *flags, "--run-dir", str(programs.folder / "run"), prefix=head.prefix)
    wait_for(lambda: "start workers with" in server.output, program=server)
    command = server.output.splitlines()[0].rpartition("start workers with: ")[2].split()
    assert command[:2] == ["rl-worker", "--server"]
    assert "all interfaces" in server.output.splitlines()[0]
    # Without a default route the host cannot know which of its addresses others reach; its bridge address is used here.
    address = f"{head.address}:{command[2].rpartition(':')[2]}"
    workers = [programs.start("rl-worker", "--server", address, prefix=host.prefix) for host in others]

    def workers_alive() -> int:
        status = programs.start("ps-ctl", "status", "--server", address, "--json", prefix=head.prefix)
        return int(json_field(status.output, "workers_alive")) if status.wait() == 0 else -1

    wait_for(lambda: workers_alive() == 2, program=server)
    hosts.cut(others[0])
    wait_for(lambda: workers_alive() == 1, program=server)
    hosts.heal(others[0])
    wait_for(lambda: workers_alive() == 2, program=server)
    assert [worker.process.poll() for worker in workers] == [None, None]


def json_field(text: str, name: str) -> float:
    import json

    return float(json.loads(text)[name])
