"""The phases of a server: which request is legal in which phase, and from whom."""

import enum
from dataclasses import dataclass

from common.protocol import messages
from common.protocol.messages import ToServer


class Phase(enum.Enum):
    EMPTY = "empty"  # no weights yet: waiting for a worker to seed them
    SERVING = "serving"  # weights are being trained
    DRAINING = "draining"  # the run is over: weights may be read, not changed
    FENCED = "fenced"  # another server has taken over the run: this one neither changes nor saves it


_ADMIN: set[type[ToServer]] = {messages.StatusRequest, messages.CheckpointRequest, messages.StopRequest}
_FOLLOWING: set[type[ToServer]] = {messages.Follow, messages.Followed}
_STANDBY: set[type[ToServer]] = {messages.Fence, *_FOLLOWING}
_ALWAYS: set[type[ToServer]] = {messages.Pull, messages.Report, messages.Goodbye, messages.Fence, *_ADMIN}
_SEEDING: set[type[ToServer]] = {messages.Hello, messages.Heartbeat, messages.Seed, *_ALWAYS}

# Every other request is refused; in DRAINING its reply is STOP. SEED is legal in SERVING, because two workers may both
# try to seed: the later one learns that its weights were not needed.
ACCEPTS: dict[Phase, set[type[ToServer]]] = {
    Phase.EMPTY: _SEEDING,
    Phase.SERVING: {messages.Push, messages.CreditRequest, *_SEEDING, *_FOLLOWING},
    Phase.DRAINING: _ALWAYS,
    Phase.FENCED: {messages.StatusRequest},
}

# Requests that need no HELLO: those of admins and standbys, and reading the weights.
FROM_ANYBODY: set[type[ToServer]] = {messages.Hello, messages.Pull, *_ADMIN, *_STANDBY}

# Requests that need an admin's key, where keys are asked for.
ADMINS_ONLY: set[type[ToServer]] = {messages.CheckpointRequest, messages.StopRequest, *_STANDBY}


@dataclass(frozen=True)
class Sender:
    """The sender of a message as far as access control knows it; the default is a sender that needs no key."""

    key: str = ""  # the public key that was shown, in ZeroMQ's notation; "" where no keys are asked for
    is_admin: bool = True


ANYBODY = Sender()
