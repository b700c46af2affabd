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

from ps_common.errors import Fenced, RequestRefused, ServerUnreachable, SettingsError, WireError
from ps_common.program.flags import Parsed
from ps_common.protocol.lineage import WHOLE, Lineage, Shard
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import status_of
from ps_server.machine.ending import OLDER, advice
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.restoring import forked_run, restored_run, starting_weights
from ps_server.settings import ServerSettings
from ps_server.shell.server_sockets import is_own
from ps_server.standby.standby import Standby
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun
from ps_server.storage.earlier_life import (
    SECRET_BYTES,
    check_unused,
    drawn,
    new_lineage,
    newest_checkpoint,
    read_lineage,
    write_lineage,
)
from ps_server.storage.resharding import is_behind_others, reshard, reshard_stored
from ps_server.storage.run_storage import RunStorage

# After a power failure both servers of a pair start at once. The standby first asks the primary, in vain, and only then
# listens: so the primary has more patience than the standby.
STANDBY_REPLY_SECONDS = 10.0
PRIMARY_REPLY_SECONDS = 2.0
CHECKPOINT_SECONDS = 30.0  # between two checkpoints, where neither a flag nor ps-ctl says otherwise
AWAY = (
    "{standby} followed this server as its standby, and does not reply. If it was promoted, it has more than step "
    "{steps} of {folder}: start it first, then this server again. If it is lost, or never served the run, continue "
    "from the state here: ps-server --resume RUN_DIR --take-back"
)

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
        start = starting_weights(flags.run.start_from)
        lineage = new_lineage(storage.folder, shard=settings.place or WHOLE)
        if flags.names_a_run and lineage.shard.number == 1:
            run = TrainingRun(flags.run, lineage)
        storage.begin_life(lineage)
    # A shard after the first warns of those that shard 1 has otherwise.
    overrides: dict[str, Any] = flags.overrides if run is None or lineage.shard.number > 1 else {}
    return ParameterServer(run, lineage=lineage, overrides=overrides, limits=limits, now=now, start=start)


def _taken_over_run(
    flags: Parsed[ServerSettings], storage: RunStorage, limits: Limits, *, keys: ClientKeys | None, now: float
) -> ParameterServer | None:
    """The run that this standby took over in an earlier life, if its folder holds one and nobody has it since."""
    if not newest_first(storage.checkpoints):
        return None
    run = restored_run(flags, storage, now=now)
    if run.primary != flags.program.standby_of:
        check_unused(storage.checkpoints)
    served = _status_of(run.primary, seconds=PRIMARY_REPLY_SECONDS, keys=keys)
    if served is not None and served.run_id not in ("", run.lineage.run_id):
        raise SettingsError(
            f"{storage.folder}: holds run {run.lineage.run_id}, but {run.primary} now serves run {served.run_id}: to "
            "follow it, take another --run-dir; to continue the run held here: "
            f"ps-server --resume {shlex.quote(str(storage.folder))}"
        )
    run_id, primary, saved_life = run.lineage.run_id, run.primary, run.lineage.life
    try:
        _begin_epoch(run, storage, keys=keys, take_back=False)
        run.may_lack_workers |= run.lineage.life > saved_life + 1
    except Fenced:
        serves_it = served is not None and served.phase != STANDBY_PHASE and served.epoch >= run.epoch
        if run.lineage.replaced_by != primary and not serves_it:
            raise  # a third server has the run
        log.warning("%s has run %s again: following, with the older state in %s", primary, run_id, storage.put_aside())
        return None
    continues = "was taken over from %s and continues here; to follow a new run there, give another --run-dir"
    log.warning(f"run %s {continues}", run_id, primary)
    return ParameterServer(run, lineage=run.lineage, overrides={}, limits=limits, now=now)


def _resumed_run(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, now: float
) -> TrainingRun:
    """The run of --resume in its next life. Raises PsRlError."""
    settings = flags.program
    if settings.fork and settings.resumed_folder is not None:
        reshard(settings.resumed_folder, storage, None)
        return forked_run(restored_run(flags, storage, now=now), storage, now=now)
    claimed = _life_in_store(storage, settings)
    if settings.resumed_folder is None or (claimed is not None and is_behind_others(storage)):
        reshard_stored(storage.store_url, storage, settings.place)
    else:
        reshard(settings.resumed_folder, storage, settings.place)
    run = restored_run(flags, storage, now=now)
    if not settings.take_back:
        _check_not_served(run, storage.folder, settings, keys=keys)
    saved_life, run.lineage = run.lineage.life, claimed or run.lineage
    is_begun, shard = claimed is not None, settings.place
    _begin_epoch(run, storage, keys=keys, take_back=settings.take_back, is_begun=is_begun, shard=shard)
    # A life between may have admitted workers, and was killed before it saved anything.
    run.may_lack_workers |= run.lineage.life > saved_life + 1
    if storage.store is not None and claimed is None:  # the run moves there: nothing of it is there yet
        storage.put_newest(run.lineage, keep=run.spec.records.keep_checkpoints)
    return run


def successor_of(settings: ServerSettings, storage: RunStorage, *, keys: ClientKeys | None) -> str:
    """
    HOST:PORT of the server that has the run of this folder now, where a new run would find it; "" in an unused folder.

    The older state here is put aside then. Raises SettingsError when nobody has that run, and CheckpointError.
    """
    if settings.resume is not None or settings.standby_of is not None or not newest_first(storage.checkpoints):
        return ""
    _, _, record = newest_checkpoint(storage.folder, storage.checkpoints)
    known = read_lineage(storage.folder) or record.lineage
    for address in dict.fromkeys((known.replaced_by or "", record.standby, record.primary)):
        served = _status_of(address, seconds=PRIMARY_REPLY_SECONDS, keys=keys)
        if served is None or served.phase == STANDBY_PHASE or served.run_id != record.lineage.run_id:
            continue
        if served.epoch > record.lineage.epoch:
            aside = storage.put_aside()
            log.warning("%s has run %s: following, with the older state in %s", address, served.run_id, aside)
            return address
    storage.check_unused()
    return ""


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
        claimed = newest.promoted(draw=drawn()).promoted(draw=drawn())
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
        run.lineage = _lineage_known_to_pair(run, storage.folder, is_asked=not take_back, keys=keys)
    if take_back:
        # One takeover may be unknown here: that of a standby which does not reply.
        run.lineage = run.lineage if is_begun else run.lineage.promoted(draw=drawn()).promoted(draw=drawn())
    elif run.lineage.replaced_by is not None:
        write_lineage(storage.folder, run.lineage)
        by = run.lineage.replaced_by
        raise Fenced(OLDER if not by and saved.was_resumed(run.lineage.epoch) else advice(by))
    elif not is_begun:
        run.lineage = run.lineage.resumed(draw=drawn())
    run.lineage = msgspec.structs.replace(run.lineage, shard=shard or run.lineage.shard)
    storage.begin_life(run.lineage)


def _check_not_served(run: TrainingRun, folder: Path, settings: ServerSettings, *, keys: ClientKeys | None) -> None:
    """Raises SettingsError when the server that this folder names lives: the folder is a copy of that server's."""
    address = read_endpoint(folder / ENDPOINT)  # a killed server leaves it
    if not address or is_own(address, settings.host, settings.port):
        return
    status = _status_of(address, seconds=PRIMARY_REPLY_SECONDS, keys=keys, is_expected=False)
    if status is not None and status.run_id == run.lineage.run_id and status.phase != STANDBY_PHASE:
        raise SettingsError(
            f"{folder}: is a copy of the folder of run {status.run_id}, which {address} serves now; a run has one "
            "server; to begin a new run with this state, add --fork"
        )


def _lineage_known_to_pair(run: TrainingRun, folder: Path, *, is_asked: bool, keys: ClientKeys | None) -> Lineage:
    """
    The lineage after asking the other server of a pair, which has the run if it serves it in a later epoch.

    Raises SettingsError when a standby that may have been promoted does not reply, unless the user `is_asked` no more.
    """
    for address, seconds in ((run.standby, STANDBY_REPLY_SECONDS), (run.primary, PRIMARY_REPLY_SECONDS)):
        status = _status_of(address, seconds=seconds, keys=keys)
        if status is None and address == run.standby and run.was_followed and is_asked:
            raise SettingsError(AWAY.format(standby=address, steps=run.progress.global_steps, folder=folder))
        if status is None or status.phase == STANDBY_PHASE:
            continue
        if status.run_id == run.lineage.run_id and status.epoch > run.epoch:
            return run.lineage.replaced(address, epoch=status.epoch)
    return run.lineage


def _status_of(address: str, *, seconds: float, keys: ClientKeys | None, is_expected: bool = True) -> Status | None:
    """The status of another server; None without one, or when it does not reply. `is_expected`: it should."""
    if not address:
        return None
    try:
        return status_of(address, timeout_seconds=seconds, keys=keys).status
    except (ServerUnreachable, RequestRefused, WireError) as error:
        level = logging.WARNING if is_expected else logging.DEBUG
        log.log(level, "%s does not say whether it serves this run: %s", address, error)
        return None
