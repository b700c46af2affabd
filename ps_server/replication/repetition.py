"""
The repetition of a primary's updates on the standby's copy of the run, one after another.

Every change goes through the code that made it at the primary, so both runs are the same, bit for bit.
"""

from collections.abc import Sequence

from ps_common.protocol import messages
from ps_common.protocol.messages import Push
from ps_common.protocol.wire import Buffer
from ps_server.machine.effects import Effect
from ps_server.machine.replies import FirstReporter, count_report
from ps_server.state.training_run import TrainingRun


class Repetition:
    """The updates since one state transfer."""

    def __init__(self) -> None:
        self._first_reporter = FirstReporter()
        self._group: list[tuple[str, Push, Sequence[Buffer]]] = []  # settled together with the next push

    def begin(self) -> None:
        """There is another state."""
        self._group.clear()

    def apply(self, run: TrainingRun, update: messages.Update, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """Apply the next update to the run."""
        worker, message = update.worker_id, update.message
        match message:
            case messages.Opened():
                run.join(worker, message)
            case messages.Adjusted():
                run.repeat_adjustments(message.adjustments)
            case messages.RunReply(state=messages.RunState() as state):
                run.take_over(message, state, now=now)
            case messages.Report():
                is_first = self._first_reporter.is_first(run.ledger.accounts[worker].number, now=now)
                if (reported := count_report(run, worker, message, is_first=is_first, now=now)) is not None:
                    return [reported]
            case Push():
                run.ledger.forget_before(worker, message.oldest)
                self._group.append((worker, message, vector))
                if not update.together:
                    run.settle(self._group)
                    self._group.clear()
        return []
