"""
A run for another number of shards: the checkpoints of all its shards as one, and the range of one new shard cut from
it.

A push that any shard has settled counts as settled: nothing is applied twice. The new shards go on from the highest T.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from torch import Tensor

from ps_common.protocol.lineage import RUN_ID_DIGITS, Lineage
from ps_common.protocol.record import Account, Record
from ps_common.protocol.shards import Shard
from ps_common.protocol.tensors import Schema


def joined_ledgers(ledgers: Sequence[dict[str, Account]]) -> tuple[dict[str, Account], list[int]]:
    """The ledgers of all shards as one; and, for each shard, how many settled pushes it lacks."""
    accounts: dict[str, Account] = {}
    lacking = [0] * len(ledgers)
    for worker in dict.fromkeys(name for ledger in ledgers for name in ledger):
        everywhere = [ledger.get(worker) for ledger in ledgers]
        newest = max(filter(None, everywhere), key=lambda account: (account.incarnation, account.through))
        # An account of an earlier process counts other pushes.
        same = [one if one is not None and one.proof == newest.proof else None for one in everywhere]
        accounts[worker] = whole = _joined_accounts(newest, [one for one in same if one is not None])
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
        standby="",
        primary="",
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


def _joined_accounts(newest: Account, same: Sequence[Account]) -> Account:
    through = max(account.through for account in same)
    early = {sequence for account in same for sequence in account.early if sequence > through}
    while through + 1 in early:
        through += 1
        early.remove(through)
    reported = max(account.reported for account in same)
    return msgspec.structs.replace(newest, through=through, early=early, reported=reported)


def _settled(account: Account) -> int:
    return account.through + len(account.early)
