"""
One checkpoint is one safetensors file: the vectors as tensors, everything else as JSON in its metadata. The checkpoints
of the shards of a run, which may be of different moments, are put together here.

The file appears whole or not at all: it is written in a hidden folder, flushed to disk, and renamed. A killed process
leaves unfinished files in the hidden folder alone. A checksum of the content shows damage when the file is read; it is
no protection against forgery.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, DamagedCheckpoint
from ps_common.protocol.names import as_text
from ps_common.protocol.record import (
    FORMAT,
    KIND,
    WEIGHTS,
    Record,
    RecordWriter,
    check_format,
    check_vectors,
    record_from_json,
    release_in,
)
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_folder import checkpoints_of, first_sound, why_none
from ps_common.run_folder.paths import BEST, CHECKPOINTS, SHARD_FOLDERS, SHARD_NAME, WRITING, newest_whole, numbers_in
from ps_common.settings.regular_file import (
    MOST_FILE_BYTES,
    NOT_REGULAR,
    check_regular,
    flush,
    made_anew,
    made_folder,
)
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec


def write_checkpoint(
    path: Path, vectors: dict[str, Tensor], record: Record, *, writer: RecordWriter | None = None
) -> None:
    """
    Write the vectors (float32, CPU) and the record as `path`; `writer` is that of earlier records of the run, if any.

    Raises CheckpointError when the disk refuses; then `path` is as it was. So it does for a record that could not be
    read again: later checkpoints displace earlier ones.
    """
    try:
        text = (writer or RecordWriter()).json(record)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: is not written, since it {error}") from error
    metadata = {"format": f"ps-rl {KIND} {FORMAT}", "record": text.decode(), "xxh3_128": _digest(vectors, text)}
    beside = path.parent / WRITING / path.name
    try:
        made_folder(beside.parent)
        mode = made_anew(beside)
        safetensors.torch.save_file(vectors, beside, metadata)
        beside.chmod(mode)
        flush(beside)
        beside.rename(path)
        flush(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    finally:
        remove_unfinished(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files in a folder of checkpoints, where no other process may be writing."""
    shutil.rmtree(folder / WRITING, ignore_errors=True)  # a disk that refuses files may refuse removals too


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Record]:
    """
    The vectors and the record, each checked.

    Raises DamagedCheckpoint, OtherFormat, or another CheckpointError when the file cannot be read or is no checkpoint.
    """
    try:
        check_regular(path, most_bytes=MOST_FILE_BYTES)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            text = metadata.get("record", "").encode()
            check_format(metadata.get("format", ""), KIND, release=release_in(text))
            vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            if metadata.get("xxh3_128") != _digest(vectors, text):
                raise DamagedCheckpoint("is damaged, because its content does not match its checksum")
        record = record_from_json(text)
        check_vectors(vectors, record)
    except CheckpointError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except RuntimeError as error:  # torch could not open or map the file
        raise CheckpointError(f"{path}: {as_text(f'cannot be read: {error}')}") from error
    except (SafetensorError, ValueError) as error:
        raise DamagedCheckpoint(f"{path}: {as_text(f'is damaged, because it cannot be read: {error}')}") from error
    return vectors, record


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """The error of a checkpoint that was not read: damage only where the path is no file of that kind."""
    kind = DamagedCheckpoint if error.errno in NOT_REGULAR else CheckpointError
    # safe_open reports any failure to open a file as one that is missing, without an errno.
    return kind(f"{path}: cannot be read: {error.strerror or 'it cannot be opened'}")


def read_weights(path: Path) -> tuple[RunSpec, Schema, Tensor, Record]:
    """The run's settings, its weights [P] and their schema, and the record. Raises CheckpointError or SettingsError."""
    vectors, record = read_checkpoint(path)
    if (shards := record.lineage.shard.of) > 1:
        raise CheckpointError(f"{path}: is of one of {shards} shards alone; give the folder of their run")
    return run_from_dict(record.run, source=str(path)), record.own_schema(), vectors[WEIGHTS], record


def _digest(vectors: dict[str, Tensor], record: bytes) -> str:
    digest = xxhash.xxh3_128(record)
    for name, vector in sorted(vectors.items()):
        digest.update(f"{name} {vector.dtype} {list(vector.shape)}".encode())
        digest.update(vector.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Checkpoints of shards that are further apart than this many minutes, and this share of the run, make no policy.
APART_MINUTES, APART_SHARE = 1.0, 0.1

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
    return max((numbers_in(path.name)[0] for path in checkpoints_of(folder)), default=-1)


def read_newest(folders: Sequence[Path], warn: Callable[[CheckpointError], None]) -> list[Checkpoint]:
    """The newest sound checkpoint of each shard. Raises CheckpointError that names the first folder without one."""
    return [_first_sound(folder, checkpoints_of(folder), warn) for folder in folders]


def read_best(folders: Sequence[Path], warn: Callable[[CheckpointError], None]) -> list[Checkpoint]:
    """
    The best checkpoint of shard 1, and of each other shard the one that is nearest to it in T; the newest of each where
    shard 1 has none, or the nearest are of another moment: a kill may have come between the best ones of two shards.
    """
    best = folders[0] / CHECKPOINTS / BEST
    if not best.exists():
        return read_newest(folders, warn)
    read = [_first_sound(folders[0], [best, *checkpoints_of(folders[0])], warn)]
    for folder in folders[1:]:
        read.append(_first_sound(folder, _nearest_first(folder, read[0][1].progress.global_steps, warn), warn))
    return read if are_of_one_moment([record for _, record in read]) else read_newest(folders, warn)


def are_of_one_moment(records: Sequence[Record]) -> bool:
    """Whether the checkpoints of shards, which each writes at its own time, are close enough to be one policy."""
    minutes = [record.progress.minutes for record in records]
    return max(minutes) - min(minutes) <= max(APART_MINUTES, APART_SHARE * max(minutes))


def _nearest_first(folder: Path, global_steps: int, warn: Callable[[CheckpointError], None]) -> list[Path]:
    """The checkpoints of a shard, those first whose T is nearest to this one."""
    steps = {path: numbers_in(path.name)[0] for path in checkpoints_of(folder)}
    if found := first_sound([path for path in [folder / CHECKPOINTS / BEST] if path.exists()], read_checkpoint, warn):
        steps[found[0]] = found[1][1].progress.global_steps
    return sorted(steps, key=lambda path: abs(steps[path] - global_steps))


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
