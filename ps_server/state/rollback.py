"""
Rollback of the weights: when they hold NaN or infinity, the run goes back to its newest verified checkpoint.

Gradients that are not finite are refused, but finite ones with too large a step can still ruin the weights. The weights
are checked some times a second, before each checkpoint, and whenever a gradient is not finite, because ruined weights
make every gradient so. Updates since the checkpoint are lost. T, the scores and the ledger stay, so that no push that
helped to ruin the weights is applied again.
"""

from collections import Counter

from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.record import Record
from ps_server.state.training_run import TrainingRun

NOTHING_TO_GO_BACK_TO = "the weights hold NaN or Inf, and there is nothing to go back to: "
MOST_RETURNS = 3  # to the same checkpoint; after that the step size is too large, and the run ends
MOST_NAMED = 5


class Rollback:
    """Watches the weights of one run, and takes the run back to a checkpoint."""

    def __init__(self) -> None:
        self._seen = 0  # the version that was checked last
        self._pushed: Counter[str] = Counter()  # updates since then, by worker id
        self._returned_to = ""  # the last checkpoint that the run went back to
        self._returns = 0  # how often in a row it went back to that one
        self._first_since = 0  # the version of the first checkpoint since then

    def pushed(self, worker_id: str) -> None:
        """Count a push of this worker that was applied."""
        self._pushed[worker_id] += 1

    def is_lost(self, run: TrainingRun) -> bool:
        """Whether the weights hold NaN or infinity. Checks only versions that it has not seen."""
        if run.store is None or run.store.version == self._seen:
            return False
        self._seen = run.store.version
        if not run.store.is_finite():
            return True
        self._pushed.clear()
        return False

    def checkpoint_begun(self, version: int) -> None:
        """A checkpoint of this version is begun."""
        self._first_since = self._first_since or version

    def roll_back(self, run: TrainingRun, checkpoint: str, vectors: dict[str, Tensor], record: Record) -> str:
        """The weights are lost: the run continues with this checkpoint. Returns what to log. Raises CheckpointError."""
        lost = f"the weights hold NaN or Inf; applied since they were finite: pushes of {self._suspects()}"
        is_first = record.version == self._first_since  # such a checkpoint holds little but what the run went back to
        origin = (is_first and self._returned_to) or checkpoint
        self._returns = self._returns + 1 if origin == self._returned_to else 1
        self._returned_to = origin
        if self._returns > MOST_RETURNS:
            raise CheckpointError(f"{lost}. Going back to {origin} has not helped: take smaller steps")
        try:
            run.roll_back(vectors, record)
        except CheckpointError as error:
            raise CheckpointError(NOTHING_TO_GO_BACK_TO + str(error)) from error
        self._first_since = 0
        return f"{lost}. Going on from {checkpoint}, without the updates since"

    def _suspects(self) -> str:
        """The workers whose pushes were applied since the weights were finite, in words."""
        named = [f"{worker} ({count})" for worker, count in self._pushed.most_common(MOST_NAMED)]
        more = len(self._pushed) - len(named)
        self._pushed.clear()
        return ", ".join([*named, *([f"{more} more"] if more > 0 else [])]) or "nobody"
