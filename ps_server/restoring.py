"""
The state that a server begins with: that of a checkpoint, continued or as a new run, or starting weights of another.
"""

import logging

import msgspec

from ps_common.errors import CheckpointError, SettingsError
from ps_common.program.flags import Parsed
from ps_common.protocol.lineage import WHOLE
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.object_store import check_folder
from ps_common.run_folder.trained import trained_in
from ps_common.settings.kinds import text_of
from ps_common.settings.overrides import resumed_run
from ps_common.settings.run_settings import run_from_dict
from ps_server.settings import ServerSettings
from ps_server.state.adjustments import remembered, undone_by_flags
from ps_server.state.ledger import Ledger
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import PUSH_WINDOW, TrainingRun
from ps_server.storage.earlier_life import begun_lineage, move_aside, newest_checkpoint
from ps_server.storage.run_storage import RunStorage

START_FROM = "--start-from"

log = logging.getLogger("ps-server")


def starting_weights(place: str) -> StartingWeights | None:
    """What --start-from names; None without the flag. Raises SettingsError, which names the flag."""
    if not place:
        return None
    check_folder(START_FROM, place)
    try:
        trained = trained_in(place, flag=START_FROM)
    except (CheckpointError, SettingsError) as error:
        raise SettingsError(str(error) if START_FROM in str(error) else f"{START_FROM}: {error}") from error
    return StartingWeights(place, trained.origin, trained.schema, trained.weights)


def restored_run(flags: Parsed[ServerSettings], storage: RunStorage, *, now: float) -> TrainingRun:
    """The run of the newest verified checkpoint, with the settings that the flags change."""
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
            text_of(undone.after),
            text_of(undone.before),
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


def forked_run(run: TrainingRun, storage: RunStorage, *, now: float) -> TrainingRun:
    """A new run that begins with this state; its older checkpoints are those of the other. Raises PsRlError."""
    if run.shard.of > 1:
        raise SettingsError(f"--fork: {storage.folder} holds one of {run.shard.of} shards; give the folder of the run")
    if storage.store is not None:
        storage.store.check_unused(storage.store_url)
    newest, *older = newest_first(storage.checkpoints)
    run.lineage, run.ledger = begun_lineage(WHOLE), Ledger(PUSH_WINDOW)  # no worker has been there
    run.first_shard, run.standby, run.primary = run.lineage.run_id, "", ""
    run.may_lack_workers = run.was_followed = False
    write_checkpoint(newest, run.weights.vectors(), run.record(now=now))
    for path in older:
        move_aside(path)
    storage.begin_life(run.lineage)
    if storage.store is not None:
        storage.put_newest(run.lineage, keep=run.spec.records.keep_checkpoints)
    log.info("run %s begins at step %d, in %s", run.lineage.run_id, run.progress.global_steps, storage.folder)
    return run
