"""
The copy of a run at a standby: first the state transfer, a whole run as one message with all that a checkpoint holds;
then the repetition of each change, through the code that made it at the primary. So both runs are the same, bit for
bit.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.messages import Adjusted, Opened, Push, Report, RunReply, RunState, State, Update
from ps_common.protocol.record import check_vectors, record_from_json, record_to_json
from ps_common.protocol.tensors import TensorSpec
from ps_common.protocol.wire import CHUNK_BYTES, MAX_FRAMES, Buffer
from ps_server.state.effects import Effect
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun


def state_of(run: TrainingRun, *, request: int, number: int, now: float) -> tuple[State, list[Buffer]]:
    """The state transfer and its buffers, which are copies. Raises Denied when one message cannot carry it."""
    # The record is too large for a header: it goes before the vectors, in their frames.
    record = record_to_json(run.record(now=now))
    vectors = run.weights.vectors()
    buffers: list[Buffer] = [record, *(vector.reshape(-1).numpy().data.cast("B") for vector in vectors.values())]
    if sum(-(-len(buffer) // CHUNK_BYTES) for buffer in buffers) > MAX_FRAMES - 2:
        raise Denied("too_large", "weights and optimizer are more than a message carries; run without a standby")
    specs = tuple(TensorSpec(name, tuple(vector.shape)) for name, vector in vectors.items())
    state = State(request=request, number=number, record_bytes=len(record), vectors=specs)
    return state, buffers


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
    return TrainingRun.restored(vectors, record, now=now)


class Repetition:
    """The repetition of the updates since one state transfer, on the run of that transfer."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._group: list[tuple[str, Push, Sequence[Buffer]]] = []  # settled together with the next push

    def apply(self, update: Update, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """Apply the next update to the run."""
        run, worker, message = self._run, update.worker_id, update.message
        match message:
            case Opened():
                run.join(worker, message)
            case Adjusted():
                run.repeat_adjustments(message.adjustments)
            case RunReply(state=RunState() as state):
                run.take_over(message, state, now=now)
            case Report():
                is_first = run.first_reporter.is_first(run.ledger.accounts[worker].number, now=now)
                record = run.count_report(worker, message, is_first=is_first, now=now)
                return [] if record is None else [record]
            case Push():
                run.ledger.forget_before(worker, message.oldest)
                self._group.append((worker, message, vector))
                if not update.together:
                    run.settle(self._group)
                    self._group.clear()
        return []
