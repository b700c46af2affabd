"""What the shell knows of the peer that has sent a message, beside its connection."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sender:
    """By default: somebody whom nobody asks for a key."""

    key: str = ""  # the public key that was shown, as ZeroMQ writes it; "" where nobody is asked for keys
    is_admin: bool = True  # may save and stop the run


ANYBODY = Sender()
