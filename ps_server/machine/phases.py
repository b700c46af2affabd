"""The phases of a server, and the sender of a request; dispatch.py has which request is legal in which, from whom."""

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    EMPTY = "empty"  # no weights yet: waiting for a worker to seed them
    SERVING = "serving"  # weights are being trained
    DRAINING = "draining"  # the run is over: weights may be read, not changed
    HANDING_OVER = "handing over"  # asked to leave: the standby is to take over, and nothing is settled any more
    FENCED = "fenced"  # another server has taken over the run: this one neither changes nor saves it


@dataclass(frozen=True)
class Sender:
    """The sender of a message as far as access control knows it; the default is a sender that needs no key."""

    key: str = ""  # the public key that was shown, in ZeroMQ's notation; "" where no keys are asked for
    is_admin: bool = True


ANYBODY = Sender()
