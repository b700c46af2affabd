"""Effects: the actions that the machine asks its shell for. The shell carries them out in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from torch import Tensor

from ps_common.protocol.messages import Episode, Evaluation, Event, ToServer, ToWorker
from ps_common.protocol.record import Record
from ps_common.protocol.wire import Buffer
from ps_server.state.weight_store import Snapshot

PeerId = bytes  # the routing id of a connection


class Send(msgspec.Struct, frozen=True):  # made for each message, in a quarter of the time of a dataclass
    """Send a message, with a snapshot or other buffers, to one peer. It may be lost: the peer requests it again."""

    to: PeerId
    message: ToWorker
    snapshot: Snapshot | None = None
    vector: Sequence[Buffer] = ()  # for the standby; these buffers do not change any more


@dataclass(frozen=True)
class SaveCheckpoint:
    """Write this state of the run to disk, in the background; then call `checkpoint_saved` or `checkpoint_failed`."""

    vectors: dict[str, Tensor]  # copies that do not change any more
    record: Record
    global_steps: int
    best: bool  # its mean return is the best so far: keep it when older ones are deleted
    keep: int  # how many of the newest are kept
    milestone: int | None = None  # episodes so far, if the run's settings ask to keep this one
    candidate: bool = False  # it is to be evaluated: keep it until another one is


@dataclass(frozen=True)
class KeepCandidate:
    """The newest checkpoint that was to be evaluated is the best so far: keep it when older ones are deleted."""


@dataclass(frozen=True)
class ReloadCheckpoint:
    """The weights are lost: read the newest verified checkpoint, then call `reloaded` or `reload_failed`, at once."""


@dataclass(frozen=True)
class RecordReport:
    """A report was counted: record it in the run folder."""

    worker_id: str
    global_steps: int  # T when the report came
    updates: int
    minutes: float
    first_episode: int  # the number in the run, from 1, of the first episode below
    episodes: tuple[Episode, ...]
    meters: dict[str, float]


@dataclass(frozen=True)
class RecordEvaluation:
    """An evaluation was counted: record it in the run folder."""

    evaluation: Evaluation
    episodes: int  # of the run, when it came
    best: bool  # its weights are kept as the best checkpoint


@dataclass(frozen=True)
class LogLine:
    """One line for the log. Then call `logged`."""

    text: str
    warning: bool = False
    kind: Literal["", "checkpoint", "adjustment", "end"] = ""
    worker_id: str = ""  # the worker that the line is about, if any
    peer: Literal["", "standby", "primary", "shard 1"] = ""  # another peer that can cause such lines without end


@dataclass(frozen=True)
class RecordEvent:
    """A line of the log has become an event of the run: write it down."""

    event: Event
    epoch: int  # events are numbered from 1 in each epoch


@dataclass(frozen=True)
class Exit:
    """The run is over and STOP is sent: stop serving once the last checkpoint is on disk."""

    reason: str


@dataclass(frozen=True)
class SendToServer:
    """
    Send a message from a standby to its primary, or from a shard to shard 1. It may be lost.

    Of a pair, HOST:PORT,HOST:PORT, both are sent it, as one serves.
    """

    to: str
    message: ToServer
    flag: Literal["--standby-of", "--shards"]  # by which the address was given


@dataclass(frozen=True)
class ClaimRun:
    """Ask the arbiter for the run, in the background; then call `claimed`."""


@dataclass(frozen=True)
class DropClaim:
    """Give back what the arbiter has granted."""


Recorded = RecordReport | RecordEvent | RecordEvaluation
Effect = (
    SendToServer | Send | SaveCheckpoint | KeepCandidate | ReloadCheckpoint | LogLine | Recorded | Exit
    | ClaimRun | DropClaim
)  # fmt: skip
