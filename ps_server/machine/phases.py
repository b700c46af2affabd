"""The phases of a server: which request is legal in which phase, and from whom."""

import enum
from dataclasses import dataclass

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from ps_server.state.guards import Denied


class Phase(enum.Enum):
    EMPTY = "empty"  # no weights yet: waiting for a worker to seed them
    SERVING = "serving"  # weights are being trained
    DRAINING = "draining"  # the run is over: weights may be read, not changed
    HANDING_OVER = "handing over"  # asked to leave: the standby is to take over, and nothing is settled any more
    FENCED = "fenced"  # another server has taken over the run: this one neither changes nor saves it


_ADMIN: set[type[ToServer]] = {
    messages.StatusRequest, messages.Subscribe, messages.Watch, messages.CheckpointRequest, messages.StopRequest
}  # fmt: skip
_FOLLOWING: set[type[ToServer]] = {messages.Follow, messages.Followed}
_STANDBY: set[type[ToServer]] = {messages.Fence, *_FOLLOWING}
_ALWAYS: set[type[ToServer]] = {messages.Pull, messages.Report, messages.Goodbye, messages.Fence, *_ADMIN}
_SEEDING: set[type[ToServer]] = {
    messages.Hello, messages.Heartbeat, messages.Seed, messages.RunRequest, messages.Adjust, messages.Frame, *_ALWAYS
}  # fmt: skip

# Every other request is refused; in DRAINING its reply is STOP, in HANDING_OVER it has none. SEED is legal in SERVING,
# because two workers may both try to seed: the later one learns that its weights were not needed.
ACCEPTS: dict[Phase, set[type[ToServer]]] = {
    Phase.EMPTY: _SEEDING,
    Phase.SERVING: {
        messages.Push,
        messages.CreditRequest,
        messages.Promote,
        messages.Evaluation,
        *_SEEDING,
        *_FOLLOWING,
    },
    Phase.DRAINING: _ALWAYS,
    Phase.HANDING_OVER: {messages.Pull, messages.Fence, messages.Followed, messages.StatusRequest},
    Phase.FENCED: {messages.StatusRequest},
}

# Requests that need no HELLO: those of admins, standbys and other shards, reading the weights, and GOODBYE.
FROM_ANYBODY: set[type[ToServer]] = {
    messages.Hello, messages.Pull, messages.RunRequest, messages.Goodbye, messages.Adjust, messages.Promote,
    messages.Evaluation,
    *_ADMIN, *_STANDBY
}  # fmt: skip

# Requests that need an admin's key, where keys are asked for.
ADMINS_ONLY: set[type[ToServer]] = {
    messages.Adjust, messages.CheckpointRequest, messages.StopRequest, messages.Promote, *_STANDBY
}  # fmt: skip


@dataclass(frozen=True)
class Sender:
    """The sender of a message as far as access control knows it; the default is a sender that needs no key."""

    key: str = ""  # the public key that was shown, in ZeroMQ's notation; "" where no keys are asked for
    is_admin: bool = True


ANYBODY = Sender()


def takes_an_admin(message: ToServer) -> bool:
    """Whether this request takes an admin's key, where keys are asked for."""
    return type(message) in ADMINS_ONLY or (isinstance(message, messages.RunRequest) and message.ending != "")


def check_sender(message: ToServer, sender: Sender, *, is_member: bool) -> None:
    """Raises Denied when this sender may not say that, whatever the phase."""
    if not is_member and type(message) not in FROM_ANYBODY:
        raise Denied("unknown_worker", "send HELLO first, on this connection")
    if not sender.is_admin and takes_an_admin(message):
        raise Denied("not_admin", "adjusting, saving, stopping and following the run takes an admin's key")
