"""
The start of a server: the run that its folder or its flags name, in an epoch of its own, which is on disk before the
first peer is served. plan.py has the table of how it begins.
"""

import dataclasses
import logging
import secrets
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import Fenced, RequestRefused, ServerUnreachable, SettingsError, WireError
from ps_common.program.flags import Parsed
from ps_common.protocol.lineage import WHOLE, Lineage
from ps_common.protocol.record import Record
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import ENDPOINT
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import status_of
from ps_server.machine.ending import OLDER, advice
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.plan import Asked, Begin, Beginning, Found, Held, beginning
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
from ps_server.storage.run_storage import RunStorage
from ps_server.storage.shard_folders import check_is_newest

CHECKPOINT_SECONDS = 30.0  # between two checkpoints, where neither a flag nor ps-ctl says otherwise

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
            server=_promoted_before(flags, storage, limits, keys=keys, now=now),
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


def successor_of(settings: ServerSettings, storage: RunStorage, *, keys: ClientKeys | None) -> str:
    """
    HOST:PORT of the server that has the run of this folder now, where a new run would find it; "" in an unused folder.

    The older state here is put aside then. Raises SettingsError when nobody has that run, and CheckpointError.
    """
    if settings.resume is not None or settings.standby_of is not None or not newest_first(storage.checkpoints):
        return ""
    record = newest_checkpoint(storage.folder, storage.checkpoints)[2]
    decided = beginning(
        Asked.NEW, _held(record, storage, was_followed=record.is_followed), partial(_status_of, keys=keys)
    )
    if decided.begin is not Begin.FOLLOW:
        storage.check_unused()
        return ""
    aside = storage.put_aside()
    log.warning("%s has run %s: following, with the older state in %s", decided.at, _run_id(decided), aside)
    return decided.at


def _promoted_before(
    flags: Parsed[ServerSettings], storage: RunStorage, limits: Limits, *, keys: ClientKeys | None, now: float
) -> ParameterServer | None:
    """The run that this standby was promoted with, if its folder holds one and nobody has it since."""
    if not newest_first(storage.checkpoints):
        return None
    run = restored_run(flags, storage, now=now)
    if run.primary != flags.program.standby_of:
        check_unused(storage.checkpoints)
    decided = beginning(
        Asked.STANDBY, _held(run, storage, was_followed=run.was_followed), partial(_status_of, keys=keys)
    )
    if decided.begin is Begin.FOLLOW:
        write_lineage(storage.folder, decided.lineage)
        where = storage.put_aside()
        log.warning("%s has run %s again: following, with the older state in %s", run.primary, _run_id(decided), where)
        return None
    _begin_life(run, decided, storage)
    continues = "was served by %s before and continues here; to follow a new run there, give another --run-dir"
    log.warning(f"run %s {continues}", run.lineage.run_id, run.primary)
    return ParameterServer(run, lineage=run.lineage, overrides={}, limits=limits, now=now)


def _resumed_run(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, now: float
) -> TrainingRun:
    """The run of --resume in its next life. Raises PsRlError."""
    settings, folder = flags.program, flags.program.resumed_folder
    if settings.fork and folder is not None:
        check_is_newest(folder, storage)
        return forked_run(restored_run(flags, storage, now=now), storage, now=now)
    claimed = _life_in_store(storage, settings)
    if folder is not None and claimed is None:
        check_is_newest(folder, storage)
    run = restored_run(flags, storage, now=now)
    held = _held(run, storage, was_followed=run.was_followed, claimed=claimed)
    address = read_endpoint(storage.folder / ENDPOINT)  # a killed server leaves it
    if address and not is_own(address, settings.host, settings.port):
        held = dataclasses.replace(held, original=address)
    asked = Asked.TAKE_BACK if settings.take_back else Asked.RESUME
    decided = beginning(asked, held, partial(_status_of, keys=keys, unexpected=held.original))
    run.lineage = msgspec.structs.replace(run.lineage, shard=settings.place or run.lineage.shard)
    _begin_life(run, decided, storage, claimed=claimed)
    if storage.store is not None and claimed is None:  # the run moves there: nothing of it is there yet
        storage.put_newest(run.lineage, keep=run.spec.records.keep_checkpoints)
    return run


def _life_in_store(storage: RunStorage, settings: ServerSettings) -> Lineage | None:
    """
    The lineage of this life, claimed in the object store, with the newest checkpoint brought into the folder; None
    without a store, in one that is still empty, and for a server that was replaced. Raises PsRlError.
    """
    if storage.store is None:
        return None
    check_is_newest(ObjectStore(storage.store_url, flag="--resume"), storage)
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
    storage.store.fetch_newest(storage.checkpoints, is_ours=is_ours)
    return claimed


def _held(
    run: Record | TrainingRun, storage: RunStorage, *, was_followed: bool, claimed: Lineage | None = None
) -> Held:
    newest, known = read_lineage(storage.folder), claimed or run.lineage
    if newest is not None and newest.run_id == known.run_id and newest.epoch > known.epoch:
        known = newest
    return Held(run.lineage, known, run.standby, run.primary, was_followed)


def _begin_life(run: TrainingRun, decided: Beginning, storage: RunStorage, *, claimed: Lineage | None = None) -> None:
    """
    Put a restored run into an epoch after all known ones, and write that to disk.

    Raises Fenced when another server has the run, SettingsError when the user has to decide.
    """
    saved, lineage, shard = run.lineage, decided.lineage, run.lineage.shard
    match decided.begin:
        case Begin.FENCED:
            write_lineage(storage.folder, lineage)
            raise Fenced(OLDER if not decided.at and saved.was_resumed(lineage.epoch) else advice(decided.at))
        case Begin.ASK_USER:
            raise SettingsError(_question(decided, run, storage.folder))
        case Begin.TAKEN_BACK:
            # One promotion may be unknown here: that of a standby which does not reply.
            lineage = claimed or lineage.promoted(draw=drawn()).promoted(draw=drawn())
        case _:
            lineage = claimed or lineage.resumed(draw=drawn())
    run.lineage = msgspec.structs.replace(lineage, shard=shard)
    # A life between may have admitted workers, and was killed before it saved anything.
    run.may_lack_workers |= lineage.life > saved.life + 1
    storage.begin_life(run.lineage)


def _question(decided: Beginning, run: TrainingRun, folder: Path) -> str:
    """What the user has to decide, and how."""
    at, run_id = decided.at, run.lineage.run_id
    match decided.found:
        case Found.ORIGINAL:
            return (
                f"{folder}: is a copy of the folder of run {run_id}, which {at} serves now; a run has one "
                "server; to begin a new run with this state, add --fork"
            )
        case Found.OTHER_RUN:
            return (
                f"{folder}: holds run {run_id}, but {at} now serves run {_run_id(decided)}: to "
                "follow it, take another --run-dir; to continue the run held here: "
                f"ps-server --resume {shlex.quote(str(folder))}"
            )
    return (
        f"{at} followed this server as its standby, and does not reply. If it was promoted, it has more than step "
        f"{run.progress.global_steps} of {folder}: start it first, then this server again. If it is lost, or never "
        "served the run, continue from the state here: ps-server --resume RUN_DIR --take-back"
    )


def _run_id(decided: Beginning) -> str:
    return decided.reply.run_id if decided.reply is not None else decided.lineage.run_id


def _status_of(address: str, seconds: float, *, keys: ClientKeys | None, unexpected: str = "") -> Status | None:
    """The status of another server; None without one, or when it does not reply, as one that is `unexpected` may."""
    if not address:
        return None
    try:
        return status_of(address, timeout_seconds=seconds, keys=keys).status
    except (ServerUnreachable, RequestRefused, WireError) as error:
        level = logging.DEBUG if address == unexpected else logging.WARNING
        log.log(level, "%s does not say whether it serves this run: %s", address, error)
        return None
