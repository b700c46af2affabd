"""
The folders of a run whose shards keep theirs in it: which set of shards is the newest, and the checkpoints of a set put
together.

Checkpoints of different shards may be of different moments. Nothing is changed here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.record import Record
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import checkpoints_of, first_sound, why_none
from ps_common.run_folder.paths import BEST, CHECKPOINTS, SHARD_FOLDERS, SHARD_NAME, newest_whole

Checkpoint = tuple[dict[str, Tensor], Record]


def newest_set(run_folder: Path) -> list[Path]:
    """
    The folders whose checkpoints together hold the newest whole vector: those of all shards in order, or the run folder
    itself; [] when nothing is whole.
    """
    sizes = {int(match[2]) for path in run_folder.glob(SHARD_FOLDERS) if (match := SHARD_NAME.fullmatch(path.name))}
    return newest_whole(run_folder, {1, *sizes}, newest_step)


def newest_step(folder: Path) -> int:
    """T of the newest checkpoint in a folder; -1 without one."""
    return max((int(path.stem.rpartition("-")[2]) for path in checkpoints_of(folder)), default=-1)


def read_newest(folders: Sequence[Path], warn: Callable[[CheckpointError], None]) -> list[Checkpoint]:
    """The newest sound checkpoint of each shard. Raises CheckpointError that names the first folder without one."""
    return [_first_sound(folder, checkpoints_of(folder), warn) for folder in folders]


def read_best(folders: Sequence[Path], warn: Callable[[CheckpointError], None]) -> list[Checkpoint]:
    """The best checkpoint of each shard where all have one, else the newest of each."""
    best = [folder / CHECKPOINTS / BEST for folder in folders]
    if not all(path.exists() for path in best):
        return read_newest(folders, warn)
    return [
        _first_sound(folder, [path, *checkpoints_of(folder)], warn) for folder, path in zip(folders, best, strict=True)
    ]


def joined(checkpoints: Sequence[Checkpoint]) -> tuple[Schema, dict[str, Tensor]]:
    """
    The schema and the whole vectors. A single number, such as a count of steps, is the largest of any shard.

    Raises CheckpointError when these are not all shards of one run, in order.
    """
    records = [record for _, record in checkpoints]
    places = [(record.lineage.shard.number, record.lineage.shard.of) for record in records]
    runs, schemas = {record.first_shard for record in records}, {Schema(record.schema) for record in records}
    if places != [(number, len(checkpoints)) for number in range(1, len(checkpoints) + 1)]:
        found = ", ".join(f"{number}/{of}" for number, of in places)
        raise CheckpointError(f"expected the checkpoints of shards 1 to {len(checkpoints)} of one run, found {found}")
    if len(runs) > 1 or len(schemas) > 1:
        raise CheckpointError(f"the shards are of different runs or networks: {', '.join(sorted(runs))}")
    parts = [vectors for vectors, _ in checkpoints]
    return schemas.pop(), {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts[0].dim() else torch.stack(parts).max()


def _first_sound(folder: Path, paths: Sequence[Path], warn: Callable[[CheckpointError], None]) -> Checkpoint:
    found = first_sound(paths, read_checkpoint, warn)
    if found is None:
        raise CheckpointError(f"{folder}: {why_none(folder)}")
    return found[1]
