"""The status of a run: what the page, the records and `ps-ctl status` show. Any thread may have it: it is immutable."""

from typing import Any

import msgspec

from ps_common.protocol.messages import StatusReply, StatusRequest
from ps_common.protocol.status import Status, WorkerStatus
from ps_common.release import release
from ps_common.settings.run_settings import run_for_peers
from ps_server.machine.membership import Member
from ps_server.state.effects import PeerId, Send
from ps_server.state.training_run import TrainingRun

# A status has to fit into one header of 1 MiB with the run and the schema, however long the workers make their names.
MAX_WORKERS = 200
MAX_WORKERS_BYTES = 550_000
FRESH_SECONDS = 0.25  # one of many workers takes milliseconds to make


def status_reply(peer: PeerId, request: StatusRequest, run: TrainingRun | None, status: Status) -> Send:
    schema = run.store.schema.specs if run and run.store else ()
    spec = run_for_peers(run.spec) if run else {}
    return Send(peer, StatusReply(request=request.request, status=status, run=spec, schema=schema))


def status_of(run: TrainingRun | None, members: list[Member], *, now: float, **fields: Any) -> Status:
    """`fields` come from neither the run nor the members. Before the run is decided its own fields are zeros."""
    zeros = dict.fromkeys(("epoch", "not_modified", "checkpoint_version", "checkpoint_failures"), 0)
    nothing: dict[str, Any] = {"run_id": "", "refused": {}} | zeros
    return Status(
        release=release(),
        workers_alive=sum(member.alive for member in members),
        workers=_workers(members, now=now),
        **(nothing | fields | (_run_fields(run, now=now) if run else {})),
    )


def _run_fields(run: TrainingRun, *, now: float) -> dict[str, Any]:
    progress = run.progress
    return {
        "run_id": run.lineage.run_id,
        "epoch": run.epoch,
        "shard": run.shard,
        "preset": run.spec.preset,
        "experiment": run.spec.experiment,
        "environment": run.spec.environment.id,
        "frames_per_step": run.spec.environment.frames_per_step,
        "max_steps": run.spec.budget.max_steps,
        "max_episodes": run.spec.budget.max_episodes,
        "max_minutes": run.spec.budget.max_minutes,
        "evaluate_every": run.spec.records.evaluate_every,
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
        "evaluation": progress.evaluation,
        "best_evaluation": progress.best_evaluation,
        "staleness_mean": progress.staleness_sum / max(1, progress.updates),
        "staleness_recent": progress.recent_staleness.mean,
        "staleness_counts": tuple(progress.staleness_counts),
        "gradient_norm": progress.gradient_norm.mean,
        "duplicates": run.duplicates,
        "paused": run.adjustments.paused,
        "drained": run.adjustments.drained,
        "settings_version": run.adjustments.version,
        "adjustments": run.adjustments.history,
    }


def _workers(members: list[Member], *, now: float) -> tuple[WorkerStatus, ...]:
    """The first members, as many as fit into a header."""
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
        left=member.left,
        stalled=member.alive and member.stalled,
        silent_seconds=now - member.last_heard,
        pushes=member.pushes,
        discarded=member.discarded,
        refused=dict(member.refused),
        refusal=member.refusal,
        steps=member.steps,
        staleness=member.staleness.mean,
        meters=dict(member.meters),
        release=member.release,
    )
