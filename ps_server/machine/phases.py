"""What is legal when."""

import enum

from common.protocol import messages
from common.protocol.messages import ToServer


class Phase(enum.Enum):
    EMPTY = "empty"  # no weights yet: waiting for a worker to seed them
    SERVING = "serving"  # weights exist and are being trained
    DRAINING = "draining"  # the run is over: weights may be read, not changed
    FENCED = "fenced"  # another server has taken over the run: nothing of it is touched any more


_ADMIN: set[type[ToServer]] = {messages.StatusRequest, messages.CheckpointRequest, messages.StopRequest}
_FOLLOWING: set[type[ToServer]] = {messages.Follow, messages.Followed}
_STANDBY: set[type[ToServer]] = {messages.Fence, *_FOLLOWING}
_ALWAYS: set[type[ToServer]] = {messages.Pull, messages.Report, messages.Goodbye, messages.Fence, *_ADMIN}
_SEEDING: set[type[ToServer]] = {messages.Hello, messages.Heartbeat, messages.Seed, *_ALWAYS}

# Anything else is refused; once the run is over here, it is answered by STOP.
# Two workers may both try to seed: the later one is told that its weights were not needed.
ACCEPTS: dict[Phase, set[type[ToServer]]] = {
    Phase.EMPTY: _SEEDING,
    Phase.SERVING: {messages.Push, messages.CreditRequest, *_SEEDING, *_FOLLOWING},
    Phase.DRAINING: _ALWAYS,
    Phase.FENCED: {messages.StatusRequest},
}

# What needs no HELLO before it: an admin's questions, a standby's overrides, and reading the weights.
FROM_ANYBODY: set[type[ToServer]] = {messages.Hello, messages.Pull, *_ADMIN, *_STANDBY}

# What a worker's key is not enough for, where keys are asked for.
ADMINS_ONLY: set[type[ToServer]] = {messages.CheckpointRequest, messages.StopRequest, *_STANDBY}
