"""Whether the server can listen where it is to, found out before anything is started."""

import socket

from ps_common.errors import SettingsError
from ps_common.protocol.names import bare_host


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
