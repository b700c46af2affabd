"""The status of a run, put together from the parts of the machine."""

from typing import Any

import msgspec

from common.status import Status, WorkerStatus
from ps_server.membership import Member
from ps_server.training_run import TrainingRun

# A status travels in one header of 1 MiB, with the run and the schema; names of workers and meters are their own.
MAX_WORKERS = 200
MAX_WORKERS_BYTES = 800_000


def status_of(run: TrainingRun | None, members: list[Member], *, now: float, **fields: Any) -> Status:
    """
    One immutable value; may be handed to any thread. `fields` are those that neither the run nor the members know.

    Before the run is decided its fields keep their zeros.
    """
    return Status(
        workers_alive=sum(member.alive for member in members),
        workers=_workers(members, now=now),
        **(_run_fields(run, now=now) if run else {}),
        **fields,
    )


def _run_fields(run: TrainingRun, *, now: float) -> dict[str, Any]:
    progress = run.progress
    return {
        "preset": run.spec.preset,
        "experiment": run.spec.experiment,
        "environment": run.spec.environment.id,
        "frames_per_step": run.spec.environment.frames_per_step,
        "max_steps": run.spec.budget.max_steps,
        "max_minutes": run.spec.budget.max_minutes,
        "until_return": run.spec.budget.until_return,
        "version": run.store.version if run.store else 0,
        "parameters": run.store.schema.size if run.store else 0,
        "snapshots": run.store.copies if run.store else 0,
        "global_steps": progress.global_steps,
        "updates": progress.updates,
        "minutes": progress.minutes(now=now),
        "steps_per_second": progress.step_rate.per_second(progress.global_steps, now=now),
        "updates_per_second": progress.update_rate.per_second(progress.updates, now=now),
        "learning_rate": run.learning_rate,
        "episodes": progress.episodes,
        "mean_return_100": progress.mean_return,
        "best_mean_return_100": progress.best_mean,
        "minutes_to_target": progress.minutes_to_target,
        "staleness_mean": progress.staleness_sum / max(1, progress.updates),
        "staleness_recent": progress.recent_staleness.mean,
        "gradient_norm": progress.gradient_norm.mean,
        "duplicates": run.duplicates,
    }


def _workers(members: list[Member], *, now: float) -> tuple[WorkerStatus, ...]:
    """As many as a header holds."""
    workers: list[WorkerStatus] = []
    size = 0
    for member in members[:MAX_WORKERS]:
        worker = _worker(member, now=now)
        size += len(msgspec.msgpack.encode(worker))
        if size > MAX_WORKERS_BYTES:
            break
        workers.append(worker)
    return tuple(workers)


def _worker(member: Member, *, now: float) -> WorkerStatus:
    return WorkerStatus(
        worker_id=member.worker_id,
        number=member.number,
        host=member.host,
        environments=member.environments,
        alive=member.alive,
        stalled=member.alive and member.stalled,
        silent_seconds=now - member.last_heard,
        pushes=member.pushes,
        discarded=member.discarded,
        refused=dict(member.refused),
        steps=member.steps,
        staleness=member.staleness.mean,
        meters=dict(member.meters),
    )
