"""What a report of a worker changes, and what people want to see of it."""

from common.messages import Report
from ps_server.effects import Reported
from ps_server.training_run import TrainingRun


def count_report(run: TrainingRun, worker_id: str, report: Report, *, now: float) -> Reported | None:
    """Count a report; None when it was counted before."""
    if not run.note_report(worker_id, report, now=now):
        return None
    return Reported(
        worker_id=worker_id,
        number=run.ledger.accounts[worker_id].number,
        global_steps=run.progress.global_steps,
        updates=run.progress.updates,
        minutes=run.progress.minutes(now=now),
        first_episode=run.progress.episodes - len(report.episodes) + 1,
        episodes=report.episodes,
        meters=dict(report.meters),
    )
