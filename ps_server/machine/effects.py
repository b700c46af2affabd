"""What the server machine wants done. The shell does it, in order, and tells the machine what it has to know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from common.protocol.messages import Episode, ToServer, ToWorker
from common.protocol.wire import Buffer
from ps_server.machine.membership import PeerId
from ps_server.state.weight_store import Snapshot


@dataclass(frozen=True)
class Send:
    """Deliver a message, with a snapshot or other buffers, to one peer. May be lost: the peer will ask again."""

    to: PeerId
    message: ToWorker
    snapshot: Snapshot | None = None
    vector: Sequence[Buffer] = ()  # for the standby; nobody writes to them any more


@dataclass(frozen=True)
class SaveCheckpoint:
    """Write this state of the run to disk, in the background; then call `checkpoint_saved` or `checkpoint_failed`."""

    vectors: dict[str, Tensor]  # copies: nobody else writes to them
    record: dict[str, Any]  # plain values
    global_steps: int
    best: bool  # its mean return is the best so far: keep it apart
    keep: int  # so many of the newest
    milestone: int | None = None  # episodes so far, when this is one of those that the run wants kept apart


@dataclass(frozen=True)
class Recall:
    """The weights are lost: read the newest sound checkpoint, then call `recalled` or `recall_failed`, at once."""


@dataclass(frozen=True)
class Reported:
    """A report was counted: write down what people want to see of it."""

    worker_id: str
    number: int
    is_first: bool  # of those that report it has the lowest number
    global_steps: int  # T when it came
    updates: int
    minutes: float
    first_episode: int  # the number in the run, from 1, of the first of these
    episodes: tuple[Episode, ...]
    meters: dict[str, float]


@dataclass(frozen=True)
class Note:
    """Something a person watching the server wants to know, in one line."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Exit:
    """The run is over and everyone has been told: stop serving once the last checkpoint is on disk."""

    reason: str


@dataclass(frozen=True)
class SendToPrimary:
    """Hand a message to the connection with the primary that this standby follows. May be lost."""

    message: ToServer


Effect = SendToPrimary | Send | SaveCheckpoint | Recall | Reported | Note | Exit
