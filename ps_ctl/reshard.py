"""
`ps-ctl reshard`: a run that has ended is cut into another number of shards. Their checkpoints are written from the
newest ones of all old shards, which stay as they are; then each new shard is resumed as any other.

A push that any old shard has settled counts as settled: nothing is applied twice. The new shards continue from the
highest T. In an object store a life of each old shard is claimed before what it has is read, so that none adds to it.
"""

import contextlib
import hashlib
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from torch import Tensor

from ps_common.errors import CheckpointError, Replaced, SchemaMismatch, SettingsError
from ps_common.protocol.lineage import DRAWN, MOST_SHARDS, RUN_ID_DIGITS, WHOLE, Lineage, Shard
from ps_common.protocol.record import Account, Record
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.folder_lock import is_locked
from ps_common.run_folder.object_store import ObjectStore, is_url
from ps_common.run_folder.paths import (
    CHECKPOINTS,
    STORE,
    check_whole_run,
    checkpoint_name,
    make_shard_folder,
    shard_folder,
)
from ps_common.run_folder.places import Place, joined, newest_set, read_newest
from ps_common.run_folder.stored_run import Stored, claim, lineage_in
from ps_common.settings.regular_file import content_of, made_folder


def cut_run(run: str, shards: int) -> Iterator[str]:
    """
    Write the checkpoints of this many shards of the run in a folder or an object store; a line on each.

    Raises SettingsError, CheckpointError or StoreError.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise SettingsError(f"--shards {shards}: is not 1 to {MOST_SHARDS}")
    place: Place = ObjectStore(run, flag="reshard") if is_url(run) else _folder(Path(run))
    old = newest_set(place)
    if not old:
        raise CheckpointError(f"{run}: holds no run, or not all of its shards")
    if len(old) == shards:
        raise SettingsError(f"{run}: its newest state is that of {shards} shards already")
    for one in old:
        _end_writing(one)
    checkpoints = read_newest(old, lambda error: _warn(f"{error}; trying the one before it"))
    whole, vectors = joined(checkpoints)
    records = [record for _, record in checkpoints]
    ledger, lacking = merged_ledgers([record.ledger for record in records])
    _report(old, [record.progress.global_steps for record in records], lacking)
    for number in range(1, shards + 1):
        shard = WHOLE if shards == 1 else Shard(number=number, addresses=("",) * shards)
        try:
            schema = whole.of_shard(number, shards)
        except SchemaMismatch as error:
            raise SettingsError(f"--shards {shards}: {error}") from error
        written = _write(place, cut(vectors, schema), record_for(records, shard, ledger))
        yield f"{written}: elements {schema.first} to {schema.range.stop - 1} of {run}"


def _folder(folder: Path) -> Path:
    """The folder of the run. Raises SettingsError when it is none, or its checkpoints are kept elsewhere too."""
    check_whole_run(folder, flag=f"reshard {folder}")
    for kept in [folder / STORE, *folder.glob(f"*/{STORE}")]:
        if kept.exists():
            url = content_of(kept).decode(errors="replace").strip()
            raise SettingsError(f"{folder}: its checkpoints are kept in {url} too, where newer ones may be; name that")
    return folder


def _end_writing(place: Place) -> None:
    """No server adds a checkpoint to what one shard has. Raises SettingsError, StoreError."""
    if isinstance(place, Path):
        _check_unlocked(place)
    else:
        _claim_next(place, draw=secrets.randbelow(DRAWN))


def _write(place: Place, vectors: dict[str, Tensor], record: Record) -> str:
    """Write the checkpoint of a new shard; where. Raises CheckpointError, StoreError or SettingsError."""
    shard, name = record.lineage.shard, checkpoint_name(record.progress.global_steps, record.version)
    if isinstance(place, Path):
        folder = shard_folder(place, shard.number, shard.of)
        make_shard_folder(folder)
        _check_unlocked(folder)
        if others := [path.name for path in newest_first(folder / CHECKPOINTS) if path.name != name]:
            why = f"holds {others[0]}, of an older state; to continue from the newest, move that folder away"
            raise SettingsError(f"{folder / CHECKPOINTS}: {why}")
        write_checkpoint(made_folder(folder / CHECKPOINTS) / name, vectors, record)
        return str(folder / CHECKPOINTS / name)
    store = place if shard.of == 1 else place.below(shard_folder(Path(), shard.number, shard.of).name)
    before = lineage_in(store)  # of as many shards, which the run once had
    known = record.lineage if before is None else msgspec.structs.replace(before, shard=shard)
    epoch = max(known.epoch, record.lineage.epoch)
    lineage = msgspec.structs.replace(known, epoch=epoch).resumed(draw=secrets.randbelow(DRAWN))
    claim(store, lineage)
    with tempfile.TemporaryDirectory() as beside:
        path = Path(beside, name)
        write_checkpoint(path, vectors, msgspec.structs.replace(record, lineage=lineage))
        store.upload(path, Stored(lineage.life, name).name)
    return f"{store.url}/{Stored(lineage.life, name).name}"


def _warn(text: str) -> None:
    print(text, file=sys.stderr)


def _report(places: list[Place], steps: list[int], lacking: list[int]) -> None:
    """One line for each shard whose checkpoint lacks pushes that another one has."""
    for place, its_steps, number in zip(places, steps, lacking, strict=True):
        if number:
            where = place if isinstance(place, Path) else place.url
            lacks = f"is of step {its_steps}, and lacks {number} pushes that others have (step {max(steps)})"
            _warn(f"{where}: its newest checkpoint {lacks}; the run goes on without these in its range")


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


def _claim_next(store: ObjectStore, *, draw: int) -> None:
    """
    Begin the life after the newest, where there is one: a checkpoint of an earlier life is there already, or never
    durable. Other programs may do the same at the same time. Raises StoreError.
    """
    while (newest := lineage_in(store)) is not None:
        with contextlib.suppress(Replaced):
            claim(store, newest.resumed(draw=draw))
            return


def _check_unlocked(folder: Path) -> None:
    """Raises SettingsError when a server keeps a run in this folder."""
    if is_locked(folder):
        raise SettingsError(f"{folder}: a ps-server keeps its shard there; end all old shards first")
