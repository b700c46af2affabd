"""Where the servers that rl-cluster starts listen, found out before anything is started."""

import socket
from contextlib import ExitStack

from ps_common.errors import SettingsError
from ps_common.protocol.names import bare_host, is_ipv6, join_address


def check_listening(host: str, port: int) -> None:
    """Raises SettingsError when this address cannot be listened at; port 0 is a free port."""
    where = f"--host {host} --port {port}: cannot listen there"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            "0.0.0.0" if host == "*" else bare_host(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:  # an unknown name, too
        raise SettingsError(f"{where}: {error.strerror}") from error


def shard_addresses(host: str, port: int, shards: int) -> list[str]:
    """Addresses for this number of servers: from `port` on, or on ports that are free now. Raises SettingsError."""
    if port:
        for further in range(port, port + shards):
            check_listening(host, further)
        return [join_address(bare_host(host), further) for further in range(port, port + shards)]
    with ExitStack() as stack:
        family = socket.AF_INET6 if is_ipv6(bare_host(host)) else socket.AF_INET
        probes = [stack.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(shards)]
        for probe in probes:
            probe.bind((bare_host(host), 0))
        return [join_address(bare_host(host), probe.getsockname()[1]) for probe in probes]
