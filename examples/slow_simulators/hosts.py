"""Two hosts on this machine: network namespaces with a cable between them. They need root and the program `ip`."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple


class Host(NamedTuple):
    address: str
    prefix: tuple[str, ...]  # before a command, which then runs there


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """They are gone after the block. Where they cannot be made, both are this machine, and the reason is printed."""
    names = [f"slow-{letter}{os.getpid()}" for letter in "ab"]
    hosts = [Host(f"10.213.0.{last}", ("ip", "netns", "exec", name)) for last, name in enumerate(names, 1)]
    with ExitStack() as made:
        try:
            for name in names:
                _ip("netns", "add", name)
                made.callback(_ip, "netns", "del", name)
            _ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
            for name, (address, _) in zip(names, hosts, strict=True):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"both hosts are this machine, by its loopback interface: {error}")
            hosts = [Host("127.0.0.1", ())] * 2
        yield hosts


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
