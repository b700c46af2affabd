"""What the server machine wants done. The shell does it, in order, and tells the machine what it has to know."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from common.messages import ToWorker
from ps_server.membership import PeerId
from ps_server.weight_store import Snapshot


@dataclass(frozen=True)
class Send:
    """Deliver a message, with the vector of a snapshot, to one peer. May be lost: the peer will ask again."""

    to: PeerId
    message: ToWorker
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class SaveCheckpoint:
    """Write this state of the run to disk, in the background; then call `checkpoint_saved` or `checkpoint_failed`."""

    vectors: dict[str, Tensor]  # copies: nobody else writes to them
    record: dict[str, Any]  # plain values
    global_steps: int
    best: bool  # its mean return is the best so far: keep it apart


@dataclass(frozen=True)
class Note:
    """Something a person watching the server wants to know, in one line."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Exit:
    """The run is over and everyone has been told: stop serving once the last checkpoint is on disk."""

    reason: str


Effect = Send | SaveCheckpoint | Note | Exit
