"""
The phases of a server: which request is legal in which phase and from whom, and what fences a server.

A server is fenced when another one serves its run in a later epoch. A worker or a standby of another run, which was
pointed here by mistake, fences nothing.
"""

import enum
from dataclasses import dataclass
from typing import TypeGuard

from common.protocol import messages
from common.protocol.messages import Fence, Hello, ToServer
from ps_server.state.training_run import TrainingRun


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


def is_fenced_by(message: ToServer, run: TrainingRun | None) -> TypeGuard[Hello | Fence]:
    """Whether the message proves that this run is served in a later epoch. A claim without the proof is ignored."""
    if run is None or not isinstance(message, Hello | Fence) or message.run_id != run.lineage.run_id:
        return False
    return message.latest_epoch > run.epoch and run.lineage.proves(message.latest_epoch, message.epoch_proof)


def advice(address: str) -> str:
    """What a person should do with a fenced server; `address` is where the run is served now, "" if that is unknown."""
    where = address or "HOST:PORT"
    other = f"{address} has" if address else "another server has"
    return (
        f"{other} taken over this run, and its checkpoints go on there. This server is over: start it as the standby "
        f"of the other, in a new folder: ps-server --standby-of {where} --run-dir FOLDER. Only if the other server and "
        "its folder are lost, go on from the older state here: ps-server --resume RUN_DIR --take-back"
    )
