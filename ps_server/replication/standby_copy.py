"""
Replication: what one standby is sent of the log, in order, and what it makes of it.

The backlog has the messages that the standby has not acknowledged, and which of them are in flight. It measures the
standby's lag. It knows neither peers nor what is durable, and drops nothing by itself.

The copy at the standby begins with the state transfer, a whole run as one message with all that a checkpoint holds.
Then each change is replayed, through the code that made it at the primary. So both runs are the same, bit for bit.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Fence, Leading, Push, State, Update
from ps_common.protocol.record import check_vectors, record_from_json, record_to_json
from ps_common.protocol.tensors import TensorSpec, vector_bytes
from ps_common.protocol.wire import CHUNK_BYTES, MAX_FRAMES, Buffer
from ps_server.state.effects import Effect
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

WINDOW = 4  # messages that may be in flight, however large they are
SMALL_WINDOW, SMALL_WINDOW_BYTES = 64, 2**22  # messages that may be in flight while they are small, and all their bytes
OVERHEAD_BYTES = 1024  # what an update takes without its vector
RESEND_SECONDS = 0.5  # without an acknowledgement, after which messages are sent again; longer for large ones
SLOWEST_BYTES_PER_SECOND = 1e6


@dataclass(frozen=True, eq=False)
class Item:
    message: State | Update
    vector: Sequence[Buffer]
    size: int
    since: float


@dataclass(frozen=True)
class Lag:
    """How far a standby is behind; all 0 when it has acknowledged everything."""

    updates: int = 0
    bytes: int = 0
    seconds: float = 0.0  # the age of the oldest


class Backlog:
    """
    The queue to one standby; the state of the run comes first. `now` is seconds of any monotonic clock.

    Invariant: the first `_in_flight` items of the queue are in flight.
    """

    def __init__(self, state: State, vector: Sequence[Buffer], *, now: float) -> None:
        self.acknowledged = 0  # the position up to which the standby has everything; 0 before it has the run
        self._progressed = now
        self._queue: deque[Item] = deque()
        self._in_flight = self._bytes = 0
        self.add(state, vector, now=now)

    @property
    def update_bytes(self) -> int:
        return self._bytes if self.acknowledged else self._bytes - self._queue[0].size

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, message: State | Update, vector: Sequence[Buffer], *, now: float) -> None:
        """Put a message at the end. Its vector must not change any more."""
        size = OVERHEAD_BYTES + vector_bytes(vector)
        self._queue.append(Item(message, vector, size, now))
        self._bytes += size

    def acknowledge(self, number: int, *, now: float) -> None:
        while self._in_flight and self._queue[0].message.number <= number:
            item = self._queue.popleft()
            self._bytes -= item.size
            self._in_flight -= 1
            self._progressed = now
            self.acknowledged = item.message.number

    def take(self, *, now: float) -> list[Item]:
        items = []
        while self._in_flight < len(self._queue) and self._has_room(item := self._queue[self._in_flight]):
            if self._in_flight == 0:
                self._progressed = now
            self._in_flight += 1
            items.append(item)
        return items

    def take_resends(self, *, now: float) -> list[Item]:
        """The items to send again, because nothing was acknowledged for too long."""
        patience = RESEND_SECONDS + self._in_flight_bytes / SLOWEST_BYTES_PER_SECOND
        if not self._in_flight or now - self._progressed <= patience:
            return []
        self._in_flight = 0
        return self.take(now=now)

    def clear(self) -> None:
        """Drop every item; `acknowledged` stays."""
        self._queue.clear()
        self._in_flight = self._bytes = 0

    def lag(self, *, now: float) -> Lag:
        if not self._queue:
            return Lag()
        return Lag(len(self._queue), self._bytes, now - self._queue[0].since)

    @property
    def _in_flight_bytes(self) -> int:
        return sum(item.size for item in islice(self._queue, self._in_flight))

    def _has_room(self, item: Item) -> bool:
        small = self._in_flight < SMALL_WINDOW and self._in_flight_bytes + item.size <= SMALL_WINDOW_BYTES
        return small or self._in_flight < WINDOW


def state_of(run: TrainingRun, *, request: int, now: float) -> tuple[State, list[Buffer]]:
    """The state transfer and its buffers, which are copies. Raises Denied when one message cannot carry it."""
    # The record is too large for a header: it goes before the vectors, in their frames.
    record = record_to_json(run.record(now=now))
    vectors = run.weights.vectors()
    buffers: list[Buffer] = [record, *(vector.reshape(-1).numpy().data.cast("B") for vector in vectors.values())]
    if sum(-(-len(buffer) // CHUNK_BYTES) for buffer in buffers) > MAX_FRAMES - 2:
        raise Denied("too_large", "weights and optimizer are more than a message carries; run without a standby")
    specs = tuple(TensorSpec(name, tuple(vector.shape)) for name, vector in vectors.items())
    number = run.log.position
    return State(request=request, number=number, record_bytes=len(record), vectors=specs), buffers


def run_of(state: State, buffers: Sequence[Buffer], *, now: float) -> TrainingRun:
    """The run of a state transfer, in the epoch of the primary. Raises SettingsError or CheckpointError."""
    whole = b"".join(buffers)
    vectors: dict[str, Tensor] = {}
    at = state.record_bytes
    if len(whole) != at + sum(spec.bytes for spec in state.vectors):
        raise CheckpointError(f"the primary's state is of another length than it says: {len(whole)} bytes")
    for spec in state.vectors:
        elements = np.frombuffer(whole, dtype="<f4", count=spec.size, offset=at)
        vectors[spec.name] = torch.from_numpy(elements.astype(np.float32)).view(spec.shape)
        at += spec.bytes
    try:
        record = record_from_json(whole[: state.record_bytes])
        check_vectors(vectors, record)
    except CheckpointError as error:
        raise type(error)(f"the primary's state {error}") from error
    run = TrainingRun.restored(vectors, record, now=now)
    run.log.position = state.number
    return run


class Replay:
    """The replay of the updates since one state transfer, on the run of that transfer."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._group: list[tuple[str, Push, Sequence[Buffer]]] = []  # settled together with the next push

    def apply(self, update: Update, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        run, worker, message = self._run, update.worker_id, update.message
        match message:
            case messages.Opened():
                run.join(worker, message)
            case messages.Adjusted():
                run.make_adjustments(message.adjustments)
            case messages.Evaluation():
                record_of_it = run.count_evaluation(message, now=now)
                return [] if record_of_it is None else [record_of_it]
            case messages.RunReply(state=messages.RunState() as state):
                run.adopt_settings(message, state, now=now)
            case messages.Report():
                record = run.count_report(worker, message, now=now)
                return [] if record is None else [record]
            case Push():
                run.ledger.settle_below(worker, message.oldest)
                self._group.append((worker, message, vector))
                if not update.more_in_group:
                    run.settle(self._group)
                    self._group.clear()
        return []


# -- the promotion -----------------------------------------------------------------------------------------------------


def promote(run: TrainingRun, lineage: Lineage, primary: str) -> None:
    """The copy becomes the run that is served. The primary's checkpoints are not on this disk."""
    run.lineage, run.primary, run.standby = lineage, primary, ""
    run.ledger.forget_durable()
    run.progress.best_saved = run.progress.saved_evaluation = None


def fence_of(lineage: Lineage, *, request: int, address: str) -> Fence:
    """The message that this server, at the address, has the run since the epoch of the lineage."""
    epoch, proof = lineage.epoch, lineage.proof
    return Fence(request=request, run_id=lineage.run_id, latest_epoch=epoch, epoch_proof=proof, address=address)


def is_proven(leading: Leading, run: TrainingRun) -> bool:
    """Whether a server of this run serves it in that epoch: anybody may listen where the primary was."""
    return leading.run_id == run.lineage.run_id and run.lineage.proves(leading.epoch, leading.epoch_proof)
