"""
The start of a server: the run that its folder or its flags name, in an epoch of its own, which is on disk before the
first peer is served.
"""

import logging
import secrets
import shlex
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import CheckpointError, Fenced, RequestRefused, ServerUnreachable, SettingsError, WireError
from ps_common.program.flags import Parsed
from ps_common.protocol.lineage import RUN_ID_DIGITS, WHOLE, Lineage, Shard
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.object_store import check_folder
from ps_common.run_folder.paths import BEST, EVENTS, METRICS
from ps_common.run_folder.run_rows import EventRow, rows_in
from ps_common.run_folder.trained import trained_in
from ps_common.settings.adjustable import shown
from ps_common.settings.overrides import resumed_run
from ps_common.settings.run_settings import run_from_dict
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import status_of
from ps_server.machine.ending import OLDER, advice
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.settings import ServerSettings
from ps_server.standby.standby import Standby
from ps_server.state.adjustments import remembered, undone_by_flags
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun
from ps_server.storage.earlier_life import check_unused, drawn, newest_checkpoint, read_lineage, write_lineage
from ps_server.storage.resharding import is_behind_others, reshard, reshard_stored
from ps_server.storage.run_storage import RunStorage

# After a power failure both servers of a pair start at once. The standby first asks the primary, in vain, and only then
# listens: so the primary has more patience than the standby.
STANDBY_REPLY_SECONDS = 10.0
PRIMARY_REPLY_SECONDS = 2.0
CHECKPOINT_SECONDS = 30.0  # between two checkpoints, where neither a flag nor ps-ctl says otherwise
SECRET_BYTES = 16
START_FROM = "--start-from"

log = logging.getLogger("ps-server")


def machine_for(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, now: float
) -> ParameterServer | Standby:
    """The machine to serve. `keys` connect it to the other server of a pair. Raises PsRlError."""
    settings = flags.program
    limits = Limits(
        lease_seconds=settings.lease_seconds,
        checkpoint_seconds=settings.checkpoint_seconds or CHECKPOINT_SECONDS,
        receive_bytes=int(settings.receive_mib * 2**20),
    )
    if settings.standby_of is not None:
        storage.remember_store()
        return Standby(
            primary=settings.standby_of,
            process=secrets.token_hex(SECRET_BYTES),
            has_arbiter=settings.arbiter is not None,
            draw=drawn(),
            takeover_seconds=settings.takeover_seconds,
            limits=limits,
            now=now,
            server=_taken_over_run(flags, storage, limits, keys=keys, now=now),
        )
    run: TrainingRun | None = None
    start: StartingWeights | None = None
    if settings.resume is not None:
        run = _resumed_run(flags, storage, keys=keys, now=now)
        lineage = run.lineage
    else:
        start = _starting_weights(flags.run.start_from)
        lineage = _new_lineage(storage, shard=settings.place or WHOLE)
        if flags.names_a_run and lineage.shard.number == 1:
            run = TrainingRun(flags.run, lineage)
        storage.begin_life(lineage)
    # A shard after the first warns of those that shard 1 has otherwise.
    overrides: dict[str, Any] = flags.overrides if run is None or lineage.shard.number > 1 else {}
    return ParameterServer(run, lineage=lineage, overrides=overrides, limits=limits, now=now, start=start)


def _starting_weights(place: str) -> StartingWeights | None:
    """What --start-from names; None without the flag. Raises SettingsError, which names the flag."""
    if not place:
        return None
    check_folder(START_FROM, place)
    try:
        trained = trained_in(place, flag=START_FROM)
    except (CheckpointError, SettingsError) as error:
        raise SettingsError(str(error) if START_FROM in str(error) else f"{START_FROM}: {error}") from error
    return StartingWeights(place, trained.origin, trained.schema, trained.weights)


def _new_lineage(storage: RunStorage, *, shard: Shard) -> Lineage:
    """The lineage of a new run; of the run of this folder if its server ended before it had saved anything."""
    before = read_lineage(storage.folder)
    if before is not None and before.shard == shard and before.replaced_by is None:
        if not _has_saved(storage.folder):
            return before.resumed(draw=drawn())
        gone = "the checkpoints of run %s are gone: a new run begins, for which its workers have to be started anew"
        log.warning(gone, before.run_id)
    run_id = secrets.token_hex(RUN_ID_DIGITS // 2)
    return Lineage.begun(run_id, secret=secrets.token_hex(SECRET_BYTES), draw=drawn(), shard=shard)


def _has_saved(folder: Path) -> bool:
    """Whether the server of this folder had saved a checkpoint; True where nobody knows."""
    try:
        return any(one.kind == "checkpoint" for one in rows_in(folder / EVENTS, EventRow))
    except FileNotFoundError:
        return (folder / METRICS).exists()
    except OSError:
        return True


def _taken_over_run(
    flags: Parsed[ServerSettings], storage: RunStorage, limits: Limits, *, keys: ClientKeys | None, now: float
) -> ParameterServer | None:
    """The run that this standby took over in an earlier life, if its folder holds one and nobody has it since."""
    if not newest_first(storage.checkpoints):
        return None
    run = _restored_run(flags, storage, now=now)
    if run.primary != flags.program.standby_of:
        check_unused(storage.checkpoints)
    served = _status_of(run.primary, seconds=PRIMARY_REPLY_SECONDS, keys=keys)
    if served is not None and served.run_id not in ("", run.lineage.run_id):
        raise SettingsError(
            f"{storage.folder}: holds run {run.lineage.run_id}, but {run.primary} now serves run {served.run_id}: to "
            "follow it, take another --run-dir; to continue the run held here: "
            f"ps-server --resume {shlex.quote(str(storage.folder))}"
        )
    run_id, primary = run.lineage.run_id, run.primary
    try:
        _begin_epoch(run, storage, keys=keys, take_back=False)
    except Fenced:
        serves_it = served is not None and served.phase != STANDBY_PHASE and served.epoch >= run.epoch
        if run.lineage.replaced_by != primary and not serves_it:
            raise  # a third server has the run
        log.warning("%s has run %s again: following, with the older state in %s", primary, run_id, storage.put_aside())
        return None
    continues = "was taken over from %s and continues here; to follow a new run there, give another --run-dir"
    log.warning(f"run %s {continues}", run_id, primary)
    return ParameterServer(run, lineage=run.lineage, overrides={}, limits=limits, now=now)


def _restored_run(flags: Parsed[ServerSettings], storage: RunStorage, *, now: float) -> TrainingRun:
    """The run of the newest sound checkpoint, with the settings that the flags change."""
    path, vectors, record = newest_checkpoint(storage.folder, storage.checkpoints)
    kept = run_from_dict(record.run, source=str(path))
    is_first = record.lineage.shard.number == 1  # shard 1 alone decides the settings
    spec = resumed_run(kept, flags.overrides) if is_first else kept
    run = TrainingRun.restored(vectors, msgspec.structs.replace(record, run=spec.to_dict()), now=now)
    if spec.budget.until_return != kept.budget.until_return:
        run.progress.target_changed(spec.budget, now=now)
    if flags.program.new_code:
        run.code.clear()
    seconds = flags.program.checkpoint_seconds if is_first else None
    for undone in undone_by_flags(kept, spec, seconds, run.progress, run.adjustments, now=now):
        run.adjustments = remembered(run.adjustments, undone)
        log.warning(
            "%s is %s by a flag, and no longer %s as it was adjusted (ps-ctl set); leave the flag out to keep that",
            undone.setting,
            shown(undone.after),
            shown(undone.before),
        )
    if seconds is not None:
        # A flag stands above what was adjusted.
        run.adjustments = msgspec.structs.replace(run.adjustments, checkpoint_seconds=None)
    log.info("resumed %s at step %d", path, run.progress.global_steps)
    if run.adjustments.paused:
        log.warning("the run is paused: ps-ctl resume goes on")
    if run.adjustments.drained:
        log.warning("the run is drained: ps-ctl resume admits workers again")
    return run


def _resumed_run(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, now: float
) -> TrainingRun:
    """The run of --resume in its next life. Raises PsRlError."""
    settings = flags.program
    claimed = _life_in_store(storage, settings)
    if settings.resumed_folder is None or (claimed is not None and is_behind_others(storage)):
        reshard_stored(storage.store_url, storage, settings.place)
    else:
        reshard(settings.resumed_folder, storage, settings.place)
    run = _restored_run(flags, storage, now=now)
    run.lineage = claimed or run.lineage
    is_begun, shard = claimed is not None, settings.place
    _begin_epoch(run, storage, keys=keys, take_back=settings.take_back, is_begun=is_begun, shard=shard)
    if storage.store is not None and claimed is None:  # the run moves there: nothing of it is there yet
        newest, keep = newest_first(storage.checkpoints)[0], run.spec.records.keep_checkpoints
        for path in (newest, storage.checkpoints / BEST):
            if path.exists():
                storage.store.put(path, run.lineage, best=False, milestone="", keep=keep)
    return run


def _life_in_store(storage: RunStorage, settings: ServerSettings) -> Lineage | None:
    """
    The lineage of this life, claimed in the object store, with the newest checkpoint brought into the folder where no
    other shards have a newer state; None without a store, in one that is still empty, and for a server that was
    replaced. Raises PsRlError.
    """
    if storage.store is None:
        return None
    there, here = storage.store.lineage(), read_lineage(storage.folder)
    if there is None:
        return None
    if here is not None and here.run_id != there.run_id:
        where = f"holds run {there.run_id}, and {storage.folder} run {here.run_id}"
        raise SettingsError(f"{storage.store.url}: {where}; take another store, or another folder (--run-dir)")
    is_ours = here is not None and here.epoch >= there.epoch
    newest = here if here is not None and is_ours else there
    if settings.take_back:
        claimed = newest.taken_over(draw=drawn()).taken_over(draw=drawn())
    elif newest.replaced_by is not None:
        return None
    else:
        claimed = newest.resumed(draw=drawn())
    storage.store.claim(claimed)  # before the newest checkpoint is read: an earlier life cannot add one any more
    if not is_behind_others(storage):  # else the run goes on from what those have
        storage.store.fetch_newest(storage.checkpoints, is_ours=is_ours)
    return claimed


def _begin_epoch(
    run: TrainingRun,
    storage: RunStorage,
    *,
    keys: ClientKeys | None,
    take_back: bool,
    is_begun: bool = False,
    shard: Shard | None = None,
) -> None:
    """
    Put a restored run into an epoch after all known ones, unless it `is_begun` already, and write that to disk.
    `shard` has new addresses, if any.

    Raises Fenced when another server has taken over the run, unless the user takes it back.
    """
    newest, saved = read_lineage(storage.folder), run.lineage
    if newest is not None and newest.run_id == run.lineage.run_id and newest.epoch > run.epoch:
        run.lineage = newest
    if run.lineage.replaced_by is None:
        run.lineage = _lineage_known_to_pair(run, keys=keys)
    if take_back:
        # One takeover may be unknown here: that of a standby which does not reply.
        run.lineage = run.lineage if is_begun else run.lineage.taken_over(draw=drawn()).taken_over(draw=drawn())
    elif run.lineage.replaced_by is not None:
        write_lineage(storage.folder, run.lineage)
        by = run.lineage.replaced_by
        raise Fenced(OLDER if not by and saved.was_resumed(run.lineage.epoch) else advice(by))
    elif not is_begun:
        run.lineage = run.lineage.resumed(draw=drawn())
    run.lineage = msgspec.structs.replace(run.lineage, shard=shard or run.lineage.shard)
    storage.begin_life(run.lineage)


def _lineage_known_to_pair(run: TrainingRun, *, keys: ClientKeys | None) -> Lineage:
    """The lineage after asking the other server of a pair, which has the run if it serves it in a later epoch."""
    for address, seconds in ((run.standby, STANDBY_REPLY_SECONDS), (run.primary, PRIMARY_REPLY_SECONDS)):
        status = _status_of(address, seconds=seconds, keys=keys)
        if status is None or status.phase == STANDBY_PHASE:
            continue
        if status.run_id == run.lineage.run_id and status.epoch > run.epoch:
            return run.lineage.replaced(address, epoch=status.epoch)
    return run.lineage


def _status_of(address: str, *, seconds: float, keys: ClientKeys | None) -> Status | None:
    """The status of the other server of a pair; None when there is none, or it does not reply."""
    if not address:
        return None
    try:
        return status_of(address, timeout_seconds=seconds, keys=keys).status
    except (ServerUnreachable, RequestRefused, WireError) as error:
        log.warning("%s does not say whether it serves this run; starting: %s", address, error)
        return None
