"""Records of runs, for tests of what holds them."""

from typing import Any

import msgspec
import torch

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.record import Record
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import RunSpec
from ps_server.state.training_run import TrainingRun

LINEAGE = Lineage(run_id="0123456789abcdef", secret="of the servers of this run", epoch=7)


def a_record(
    size: int = 3,
    *,
    steps: int = 0,
    minutes: float = 0.0,
    schema: Schema | None = None,
    run: RunSpec | None = None,
    **changes: Any,
) -> Record:
    """The record of a run of so many weights after so many steps, each of which was an update."""
    schema = schema or Schema([TensorSpec("w", (size,))])
    training = TrainingRun(run or RunSpec(), LINEAGE)
    training.seed(schema, torch.zeros(schema.size))
    record = training.record(now=0.0)
    progress = msgspec.structs.replace(record.progress, global_steps=steps, updates=steps, minutes=minutes)
    return msgspec.structs.replace(record, progress=progress, **changes)
