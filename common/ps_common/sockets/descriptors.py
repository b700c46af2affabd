"""How many descriptors this process may have. (The usual 1024 is for programs with `select`.)"""

import contextlib
import resource


def most_descriptors() -> int:
    """The most that this process may be allowed, with `take_every_descriptor_allowed`."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**63 if most == resource.RLIM_INFINITY else most


def take_every_descriptor_allowed() -> None:
    """Raise the limit of descriptors as far as the system lets this user."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # the limit may be more than the system supports
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
