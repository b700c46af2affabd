"""How other machines reach this server, which may listen on every interface."""

import socket

from common.protocol.addresses import EVERY_INTERFACE, bare_host

# Documentation's own networks: nothing is sent there, but the system says from which address it would be.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def own_host(typed: str, bound: str) -> str:
    """`typed` is what the user said; `bound` the address that is listened on."""
    host = bare_host(typed)
    if bound in EVERY_INTERFACE:
        return _towards_the_outside()
    return bound if host in (name for _, name in socket.if_nameindex()) else host


def _towards_the_outside() -> str:
    """The address that a packet to another network would carry, or the name of this machine where there is none."""
    for family, outside in OUTSIDE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return socket.gethostname()
