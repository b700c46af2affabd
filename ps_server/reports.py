"""What a report of a worker changes, who the first of those that report is, and what people want to see of it."""

from common.messages import Report
from ps_server.effects import Reported
from ps_server.training_run import TrainingRun

LATE_SECONDS = 30.0  # without a report: the first worker has left, or stands still


class FirstReporter:
    """
    Who does what one worker alone does for a run: of those that report, the one with the lowest number.

    When it reports no more the others take its place, at last the lowest of them.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._heard = 0.0

    def is_first(self, number: int, *, now: float) -> bool:
        """The worker with this number reports: is it the first?"""
        if self._number is None or number <= self._number or now - self._heard > LATE_SECONDS:
            self._number, self._heard = number, now
        return number == self._number


def count_report(run: TrainingRun, worker_id: str, report: Report, *, is_first: bool, now: float) -> Reported | None:
    """Count a report; None when it was counted before."""
    if not run.note_report(worker_id, report, now=now):
        return None
    return Reported(
        worker_id=worker_id,
        number=run.ledger.accounts[worker_id].number,
        is_first=is_first,
        global_steps=run.progress.global_steps,
        updates=run.progress.updates,
        minutes=run.progress.minutes(now=now),
        first_episode=run.progress.episodes - len(report.episodes) + 1,
        episodes=report.episodes,
        meters=dict(report.meters),
    )
