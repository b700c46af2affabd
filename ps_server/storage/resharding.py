"""
`ps-server --resume RUN_DIR --shard K/N` for a run that had another number of shards: a checkpoint for the new shard is
written from the newest ones of all old shards. Then the new shard is resumed as any other.

All new shards read the same files, which stay as they are. A push that any old shard has settled counts as settled:
nothing is applied twice. The new shards go on from the highest T.
"""

import hashlib
import logging
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from torch import Tensor

from ps_common.errors import CheckpointError, SchemaMismatch, SettingsError
from ps_common.protocol.lineage import RUN_ID_DIGITS, WHOLE, Lineage, Shard
from ps_common.protocol.record import Account, Record
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import joined, newest_set, newest_step, read_newest, write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.folder_lock import check_unlocked
from ps_common.run_folder.paths import (
    CHECKPOINTS,
    SHARD_FOLDERS,
    SHARD_NAME,
    checkpoint_name,
    make_shard_folder,
    shard_folder,
)
from ps_common.run_folder.stored_run import fetch_sound, newest_set_in, newest_steps_in
from ps_common.run_folder.stored_run import newest_first as newest_in_store
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.run_storage import RunStorage

log = logging.getLogger("ps-server")


def folder_of_shard(given: Path, place: Shard | None) -> Path:
    """
    The folder of a server. The given one is that of its run, or its own, which a server names when it ends.

    Raises SettingsError when it is the folder of another shard.
    """
    if (match := SHARD_NAME.fullmatch(given.resolve().name)) is None:
        wanted = place or WHOLE
        folder = shard_folder(given, wanted.number, wanted.of)
        make_shard_folder(folder)
        return folder
    if place is not None and (str(place.number), str(place.of)) != match.groups():
        raise SettingsError(
            f"{given}: is the folder of shard {match[1]}/{match[2]}; for --shard {place.number}/{place.of} give "
            f"the folder of the whole run, {given.parent}"
        )
    return given


def check_no_others(folder: Path, store: str | None) -> None:
    """
    Raises SettingsError when a new run would lie beside one that has another number of shards: whoever takes the newest
    of all checkpoints there would mix them up. `folder` is that of the server, `store` the URL for all of the run.
    """
    own = SHARD_NAME.fullmatch(folder.resolve().name)
    run_folder = folder.resolve().parent if own else folder
    of = int(own[2]) if own else 1
    for beside in (run_folder, *run_folder.glob(SHARD_FOLDERS)):
        if _shards_named(beside.name) != of and newest_step(beside) >= 0:
            how = f"take another folder, or continue that run: --resume {shlex.quote(str(run_folder))}"
            raise SettingsError(f"{run_folder}: holds the checkpoints of a run, in {beside.name}; {how}")
    stored = newest_set_in(store, flag="--checkpoint-dir") if store else []
    if store and stored and _shards_named(stored[0]) != of:
        raise SettingsError(f"{store}: holds a run; take another place, or --resume {shlex.quote(store)}")


def _shards_named(folder: str) -> int:
    """The number of shards in the name of a folder; 1 where it is not that of a shard."""
    match = SHARD_NAME.fullmatch(folder)
    return int(match[2]) if match else 1


def reshard(given: Path, storage: RunStorage, place: Shard | None) -> None:
    """
    Write the first checkpoint of this shard, if the newest state of the run is that of other shards.

    `given` is the folder of the run or of this shard. Raises CheckpointError or SettingsError.
    """
    is_own = SHARD_NAME.fullmatch(given.resolve().name) is not None
    old, shard = newest_set(given.parent if is_own else given), place or WHOLE
    steps = min(map(newest_step, old), default=-1)
    if newest_step(storage.folder) >= steps:
        return
    if newest_first(storage.checkpoints):
        raise SettingsError(
            f"{storage.checkpoints}: holds an older state than {old[0].name} … {old[-1].name}; to continue from there, "
            "move that folder away"
        )
    if is_own and place is None:
        raise SettingsError(f"{given}: has no checkpoint; to begin with those of its run, add --shard and --shards")
    for folder in old:
        check_unlocked(folder)
    checkpoints = read_newest(old, lambda error: log.warning("%s; trying the one before it", error))
    whole, vectors = joined(checkpoints)
    records = [record for _, record in checkpoints]
    ledger, lacking = merged_ledgers([record.ledger for record in records])
    _report(old, [record.progress.global_steps for record in records], lacking)
    record = record_for(records, shard, ledger)
    try:
        schema = whole.of_shard(shard.number, shard.of)
    except SchemaMismatch as error:
        raise SettingsError(f"--shard {shard.number}/{shard.of}: {error}") from error
    path = storage.checkpoints / checkpoint_name(record.progress.global_steps, record.version)
    write_checkpoint(path, cut(vectors, schema), record)
    log.info("%s begins with elements %d to %d of %s", path, schema.first, schema.range.stop - 1, given)


def is_behind_others(storage: RunStorage) -> bool:
    """Whether other shards have a newer state of the run in the store than this server's part. Raises StoreError."""
    url, name = storage.store_url, storage.folder.resolve().name
    steps, newest = newest_steps_in(url, flag="--resume"), newest_set_in(url, flag="--resume")
    own = steps.get(name if SHARD_NAME.fullmatch(name) else "", -1)
    return bool(newest) and own < min(steps[folder] for folder in newest)


def reshard_stored(url: str, storage: RunStorage, place: Shard | None) -> None:
    """
    As `reshard`, of a run in an object store. A life of each old shard is claimed before what it has is read.

    Raises CheckpointError, StoreError or SettingsError.
    """
    shard, old = place or WHOLE, newest_set_in(url, flag="--resume")
    if not old and not newest_first(storage.checkpoints):
        raise CheckpointError(f"--resume {url}: there is no run")
    if not old or shard_folder(Path(), shard.number, shard.of).name in old:
        return
    places = {folder: f"{url.rstrip('/')}/{folder}".rstrip("/") for folder in old}
    for at in places.values():
        CheckpointStore(at, flag="--resume").claim_next()
    with tempfile.TemporaryDirectory() as name:
        for folder, at in places.items():
            checkpoints = Path(name, folder, CHECKPOINTS)
            checkpoints.mkdir(parents=True)
            fetch_sound(at, checkpoints, flag="--resume", order=newest_in_store)
        reshard(Path(name), storage, place)


def _report(folders: list[Path], steps: list[int], lacking: list[int]) -> None:
    """One line for each shard whose checkpoint lacks pushes that another one has."""
    for folder, its_steps, number in zip(folders, steps, lacking, strict=True):
        if number:
            log.warning(
                "%s: its newest checkpoint is of step %d, and lacks %d pushes that others have (step %d); the run goes "
                "on without these in its range",
                folder,
                its_steps,
                number,
                max(steps),
            )


def merged_ledgers(ledgers: Sequence[dict[str, Account]]) -> tuple[dict[str, Account], list[int]]:
    """The ledgers of all shards as one; and, for each shard, how many settled pushes it lacks."""
    accounts: dict[str, Account] = {}
    lacking = [0] * len(ledgers)
    for worker in dict.fromkeys(name for ledger in ledgers for name in ledger):
        everywhere = [ledger.get(worker) for ledger in ledgers]
        newest = max(filter(None, everywhere), key=lambda account: (account.incarnation, account.through))
        # An account of an earlier process counts other pushes.
        same = [one if one is not None and one.proof == newest.proof else None for one in everywhere]
        accounts[worker] = whole = _merged_account(newest, [one for one in same if one is not None])
        for number, one in enumerate(same):
            lacking[number] += _settled(whole) - (_settled(one) if one is not None else 0)
    return accounts, lacking


def record_for(records: Sequence[Record], shard: Shard, ledger: dict[str, Account]) -> Record:
    """The record of a new shard; `records` are those of all old shards, in order."""
    furthest = max(records, key=lambda record: record.progress.global_steps)
    return msgspec.structs.replace(
        furthest,
        lineage=_lineage_of(records[0].lineage, shard),
        run=records[0].run,  # shard 1 decides the settings
        adjustments=records[0].adjustments,
        version=max(record.version for record in records),
        target_version=max(record.target_version for record in records),
        # The best checkpoint of the old shard is of other ranges.
        progress=msgspec.structs.replace(furthest.progress, best_saved=None),
        ledger=ledger,
        superseded=max(record.superseded for record in records),
        standby="",
        primary="",
        is_followed=False,
        is_last=False,  # the old shards may have admitted workers since
    )


def cut(vectors: dict[str, Tensor], schema: Schema) -> dict[str, Tensor]:
    """The range of a shard, whose schema this is, in whole vectors. Those of optimizer slots have no statistics."""
    return {name: vector[schema.range].clone() if vector.dim() else vector for name, vector in vectors.items()}


def _lineage_of(first: Lineage, shard: Shard) -> Lineage:
    """Shard 1 goes on with the run id of the old shard 1. The others, which hold other ranges, have new ones."""
    if shard.number == 1:
        return msgspec.structs.replace(first, shard=shard, replaced_by=None)
    digest = hashlib.sha256(f"{first.run_id} {first.secret} {shard}".encode()).hexdigest()
    return Lineage(run_id=digest[:RUN_ID_DIGITS], secret=digest[RUN_ID_DIGITS:], epoch=first.epoch, shard=shard)


def _merged_account(newest: Account, same: Sequence[Account]) -> Account:
    through = max(account.through for account in same)
    early = {sequence for account in same for sequence in account.early if sequence > through}
    while through + 1 in early:
        through += 1
        early.remove(through)
    reported = max(account.reported for account in same)
    return msgspec.structs.replace(newest, through=through, early=frozenset(early), reported=reported)


def _settled(account: Account) -> int:
    return account.through + len(account.early)
