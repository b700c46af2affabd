"""
Soundness of the weights: when they hold NaN or infinity, the run goes back to its newest sound checkpoint.

Gradients that are not finite are refused, but finite ones with too large a step can still ruin the weights. The weights
are checked some times a second, before each checkpoint, and whenever a gradient is not finite, because ruined weights
make every gradient so. Updates since the checkpoint are lost. T, the scores and the ledger stay, so that no push that
helped to ruin the weights is applied again.
"""

from collections import Counter

from ps_server.state.training_run import TrainingRun

MOST_RETURNS = 3  # to the same checkpoint; after that the step size is too large, and the run ends
MOST_NAMED = 5


class Soundness:
    """Watches the weights of one run."""

    def __init__(self) -> None:
        self._seen = 0  # the version that was checked last
        self._pushed: Counter[str] = Counter()  # updates since then, by worker id
        self._returned_to = ""  # the last checkpoint that the run went back to
        self._returns = 0

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

    def returned(self, checkpoint: str) -> bool:
        """The run goes back to this checkpoint. False when it has done so too often."""
        self._returns = self._returns + 1 if checkpoint == self._returned_to else 1
        self._returned_to = checkpoint
        return self._returns <= MOST_RETURNS

    def suspects(self) -> str:
        """The workers whose pushes were applied since the weights were sound, in words."""
        named = [f"{worker} ({count})" for worker, count in self._pushed.most_common(MOST_NAMED)]
        more = len(self._pushed) - len(named)
        self._pushed.clear()
        return ", ".join([*named, *([f"{more} more"] if more > 0 else [])]) or "nobody"
