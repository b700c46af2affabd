"""Several hosts: network namespaces joined by veth pairs. Needs root and iproute2, and no modules of the kernel."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000  # of linux/sched.h
NOBODY = "02:00:00:00:00:99"  # a hardware address that no host has


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
    """Hosts on one bridge; the bridge has a namespace of its own, so the machine's network is unchanged. Needs root."""

    def __init__(self, count: int) -> None:
        self.bridge = f"psbr{os.getpid()}"
        self._names: list[str] = []
        ip("netns", "add", self.bridge)
        self._names.append(self.bridge)
        ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "br0", "up")
        self.hosts = [self._add(number) for number in range(1, count + 1)]

    def _add(self, number: int) -> Host:
        host = Host(f"psh{number}-{os.getpid()}", f"10.211.0.{number}", f"v{number}")
        ip("netns", "add", host.name)
        self._names.append(host.name)
        ip("link", "add", host.link, "netns", self.bridge, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        ip("-n", self.bridge, "link", "set", host.link, "master", "br0", "up")
        ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.name, "link", "set", "eth0", "up")
        ip("-n", host.name, "link", "set", "lo", "up")
        return host

    def cut(self, host: Host) -> None:
        """Pull its cable."""
        ip("-n", self.bridge, "link", "set", host.link, "down")

    def heal(self, host: Host) -> None:
        """Plug its cable in again."""
        ip("-n", self.bridge, "link", "set", host.link, "up")

    def mute(self, host: Host, towards: Host) -> None:
        """Drop all packets from `host` to `towards`; the other direction still works."""
        ip("-n", host.name, "neigh", "replace", towards.address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def unmute(self, host: Host, towards: Host) -> None:
        """Undo `mute`."""
        ip("-n", host.name, "neigh", "del", towards.address, "dev", "eth0")

    def remove(self) -> None:
        for name in self._names:
            ip("netns", "del", name)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Sockets of this thread, and of threads and processes that it starts, are opened on that host."""
    with open("/proc/thread-self/ns/net") as here, open(f"/var/run/netns/{host.name}") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
