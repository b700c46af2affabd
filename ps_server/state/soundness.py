"""
Weights that are no numbers any more, and what is done about it: the run goes back to its newest sound checkpoint.

No gradient is applied that is not finite; but many finite ones can, with too large a step, make weights that are not.
They are looked at some times a second and before each checkpoint, and at once when a gradient is not finite: with
ruined weights all are. What was made of the weights since the checkpoint is lost; T, the scores and the ledger stay, so
that no push that helped to ruin them is applied again.
"""

from collections import Counter

from ps_server.state.training_run import TrainingRun

MOST_RETURNS = 3  # to one and the same checkpoint: then steps are too large, and the run is over
MOST_NAMED = 5


class Soundness:
    """Watches the weights of one run."""

    def __init__(self) -> None:
        self._seen = 0  # the version that was looked at last
        self._pushed: Counter[str] = Counter()  # updates since then, by worker id
        self._returned_to = ""  # the checkpoint that the run went back to last
        self._returns = 0

    def pushed(self, worker_id: str) -> None:
        """A push of this worker has become an update, or part of one."""
        self._pushed[worker_id] += 1

    def is_lost(self, run: TrainingRun) -> bool:
        """Whether the weights hold NaN or infinity, as far as they have changed since this was last asked."""
        if run.store is None or run.store.version == self._seen:
            return False
        self._seen = run.store.version
        if not run.store.is_finite():
            return True
        self._pushed.clear()
        return False

    def returned(self, checkpoint: str) -> bool:
        """The run goes back to the checkpoint of this name. False when that has been tried too often."""
        self._returns = self._returns + 1 if checkpoint == self._returned_to else 1
        self._returned_to = checkpoint
        return self._returns <= MOST_RETURNS

    def suspects(self) -> str:
        """Whose pushes were applied since the weights were sound, in words."""
        named = [f"{worker} ({count})" for worker, count in self._pushed.most_common(MOST_NAMED)]
        more = len(self._pushed) - len(named)
        self._pushed.clear()
        return ", ".join([*named, *([f"{more} more"] if more > 0 else [])]) or "nobody"
