"""
The contents of replies: WELCOME, ALIVE, the weights, the status of the run; and what is recorded of a worker's report.

These functions change nothing but the run's count of reports. Whether a peer may have a reply is decided elsewhere.
"""

from typing import Any

import msgspec

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.deltas import DELTA, WHOLE
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import (
    Alive,
    Heartbeat,
    Hello,
    NotModified,
    Pull,
    Push,
    Report,
    RunReply,
    RunRequest,
    RunState,
    Settlement,
    Weights,
    Welcome,
)  # fmt: skip
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.protocol.record import Account
from ps_common.protocol.status import Status, WorkerStatus
from ps_server.machine.effects import Reported, Send
from ps_server.machine.membership import Member, PeerId
from ps_server.state.adjustments import Adjustments
from ps_server.state.guards import Denied, codec_for_weights
from ps_server.state.training_run import TrainingRun
from ps_server.state.weight_store import Snapshot, WeightStore


def welcome(hello: Hello, run: TrainingRun, account: Account, *, lease_seconds: float, credit: int) -> Welcome:
    """The reply to a HELLO that is admitted."""
    return Welcome(
        request=hello.request,
        protocol=messages.PROTOCOL_VERSION,
        run_id=run.lineage.run_id,
        epoch=run.epoch,
        epoch_proof=run.lineage.proof,
        incarnation=account.incarnation,
        number=account.number,
        run=run.spec.to_dict(),
        schema=run.store.schema.specs if run.store else (),
        version=run.store.version if run.store else 0,
        global_steps=run.progress.global_steps,
        settled_through=account.through,
        reported_through=account.reported,
        lease_seconds=lease_seconds,
        codecs=CODEC_NAMES,
        credit=credit,
        settings_version=run.adjustments.version,
        shard=run.shard,
        first_shard=run.first_shard,
        drained=run.adjustments.drained,
    )


def directions(hello: Hello, lineage: Lineage, *, lease_seconds: float) -> Welcome:
    """The reply of a shard after the first to a worker that has not joined shard 1: the addresses, and no admission."""
    counts = ("incarnation", "number", "version", "global_steps", "settled_through", "reported_through")
    nothing: dict[str, Any] = dict.fromkeys(counts, 0)
    return Welcome(
        request=hello.request,
        protocol=messages.PROTOCOL_VERSION,
        run_id=lineage.run_id,
        epoch=lineage.epoch,
        epoch_proof=lineage.proof,
        **nothing,
        run={},
        schema=(),
        lease_seconds=lease_seconds,
        codecs=CODEC_NAMES,
        shard=lineage.shard,
    )


def run_reply(request: RunRequest, run: TrainingRun | None, lineage: Lineage, *, ending: str = "") -> RunReply:
    """The reply to RUN_REQUEST of a worker, or of another shard. `ending`: why the run is over. Raises Denied."""
    if run is None and not request.shard:
        raise Denied("no_weights", "there is no run yet: no worker has joined")
    made, state = (run.adjustments if run else Adjustments()).record(), None
    if request.shard:
        state = RunState(
            shard=lineage.shard,
            run_id=lineage.run_id,
            first_shard=run.first_shard if run else lineage.run_id,
            epoch=lineage.epoch,
            global_steps=run.progress.global_steps if run else 0,
            adjustments=made,
            ending=as_text(ending, LONGEST_SENTENCE),
        )
    spec, number = run.spec.to_dict() if run else {}, request.request
    return RunReply(request=number, settings_version=made.version, run=spec, drained=made.drained, state=state)


def alive(
    heartbeat: Heartbeat, run: TrainingRun, account: Account, *, waiting: bool, credit: int, saving: bool, watched: bool
) -> Alive:
    """The reply to HEARTBEAT."""
    return Alive(
        request=heartbeat.request,
        epoch=run.epoch,
        version=run.store.version if run.store else 0,
        global_steps=run.progress.global_steps,
        durable=account.durable,
        waiting=waiting,
        credit=credit,
        saving=saving,
        settings_version=run.adjustments.version,
        watched=watched,
    )


def newest(
    peer: PeerId, message: Pull | Push, run: TrainingRun | None, *, codec: str, settled: Settlement | None, epoch: int
) -> Send:
    """The newest weights in this codec, or NOT_MODIFIED when the peer has them. Raises Denied."""
    store = run.store if run else None
    is_target = isinstance(message, Pull) and message.target
    version = 0 if store is None else store.target_version if is_target else store.version
    fields: dict[str, Any] = {
        "request": message.request,
        "epoch": epoch,
        "version": version,
        "global_steps": run.progress.global_steps if run else 0,
        "target_version": store.target_version if store else 0,
        "settled": settled,
    }
    codec = codec_for_weights(codec)
    if store is None or (message.have_epoch, message.have_version) == (epoch, version):
        return Send(peer, NotModified(**fields))
    base = message.have_version if message.have_epoch == epoch else 0
    snapshot = _snapshot(store, codec, target=is_target, base=base)
    return Send(peer, Weights(**fields, codec=snapshot.codec, base=snapshot.base), snapshot)


def renewed(send: Send, run: TrainingRun, *, target: bool) -> Send:
    """A reply that waited to be sent, with the newest weights (or target weights) instead."""
    assert isinstance(send.message, Weights), "nothing else carries weights"
    store = run.weights
    snapshot = _snapshot(store, send.message.codec, target=target, base=send.message.base)
    message = msgspec.structs.replace(
        send.message,
        version=snapshot.version,
        global_steps=run.progress.global_steps,
        target_version=store.target_version,
        codec=snapshot.codec,
        base=snapshot.base,
    )
    return Send(send.to, message, snapshot)


def _snapshot(store: WeightStore, codec: str, *, target: bool, base: int) -> Snapshot:
    """The newest weights (or target weights) in this codec; a delta is from `base`, where that version is kept."""
    if codec == DELTA and not target:
        return store.snapshot_since(base)
    return store.snapshot(WHOLE if codec == DELTA else codec, target=target)


def status_reply(peer: PeerId, request: messages.StatusRequest, run: TrainingRun | None, status: Status) -> Send:
    """The reply to STATUS_REQUEST."""
    schema = run.store.schema.specs if run and run.store else ()
    spec = run.spec.to_dict() if run else {}
    return Send(peer, messages.StatusReply(request=request.request, status=status, run=spec, schema=schema))


# A status has to fit into one header of 1 MiB with the run and the schema, however long the workers make their names.
MAX_WORKERS = 200
MAX_WORKERS_BYTES = 700_000


def status_of(run: TrainingRun | None, members: list[Member], *, now: float, **fields: Any) -> Status:
    """
    The status as an immutable value, which any thread may have. `fields` come from neither the run nor the members.

    Before the run is decided its fields are zeros.
    """
    return Status(
        workers_alive=sum(member.alive for member in members),
        workers=_workers(members, now=now),
        **(fields | (_run_fields(run, now=now) if run else {})),
    )


def _run_fields(run: TrainingRun, *, now: float) -> dict[str, Any]:
    progress = run.progress
    return {
        "shard": run.shard,
        "preset": run.spec.preset,
        "experiment": run.spec.experiment,
        "environment": run.spec.environment.id,
        "frames_per_step": run.spec.environment.frames_per_step,
        "max_steps": run.spec.budget.max_steps,
        "max_episodes": run.spec.budget.max_episodes,
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
    )


LATE_SECONDS = 30.0  # without a report, after which the first reporter is taken for gone or stalled


class FirstReporter:
    """
    The reporting worker with the lowest number, to which falls what one worker alone does for a run.

    When its reports end, the next worker that reports takes its place, and then the lowest again.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._heard = 0.0

    def is_first(self, number: int, *, now: float) -> bool:
        """Whether the worker with this number, which reports now, is the first."""
        if self._number is None or number <= self._number or now - self._heard > LATE_SECONDS:
            self._number, self._heard = number, now
        return number == self._number


def count_report(run: TrainingRun, worker_id: str, report: Report, *, is_first: bool, now: float) -> Reported | None:
    """Count a report and return what to record of it; None when it was counted before."""
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
        staleness=run.progress.take_staleness(),
    )
