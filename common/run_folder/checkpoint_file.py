"""
One checkpoint is one safetensors file: the vectors as tensors, everything else as JSON in its metadata.

The file appears whole or not at all: it is written in a hidden folder, flushed to disk, and renamed. A killed process
leaves unfinished files in the hidden folder alone. A checksum of the content shows damage when the file is read; it is
no protection against forgery.
"""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from common.errors import CheckpointError, DamagedCheckpoint, SchemaMismatch
from common.protocol.tensors import Schema
from common.run_folder.paths import WRITING
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import RunSpec

FORMAT = "ps-rl checkpoint 2"


def write_checkpoint(path: Path, vectors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """
    Write the vectors (any shapes, float32, CPU) and the record (plain values) as `path`.

    Raises CheckpointError when the disk refuses; then `path` is as it was.
    """
    text = json.dumps(record)
    metadata = {"format": FORMAT, "record": text, "xxh3_128": _digest(vectors, text)}
    beside = path.parent / WRITING / path.name
    try:
        with contextlib.suppress(FileExistsError):
            beside.parent.mkdir()
        safetensors.torch.save_file(vectors, beside, metadata)
        beside.chmod(0o644)  # the library makes it readable by its owner alone, unlike the run's other files
        _flush(beside)
        beside.rename(path)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    finally:
        remove_unfinished(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files in a folder of checkpoints, where no other process may be writing."""
    shutil.rmtree(folder / WRITING, ignore_errors=True)  # a disk that refuses files may refuse removals too


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """
    The vectors and the record.

    Raises DamagedCheckpoint, or another CheckpointError when the file cannot be read or is no checkpoint.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{path}: is not a {FORMAT}")
            vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            text = metadata.get("record", "")
            if metadata.get("xxh3_128") != _digest(vectors, text):
                raise DamagedCheckpoint(f"{path}: is damaged: its content does not match its checksum")
            record: dict[str, Any] = json.loads(text)
            return vectors, record
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    except (SafetensorError, ValueError) as error:
        raise DamagedCheckpoint(f"{path}: is damaged, cannot be read: {error}") from error


def read_weights(path: Path) -> tuple[RunSpec, Schema, Tensor, dict[str, Any]]:
    """The run's settings, its weights [P] and their schema, and the record. Raises CheckpointError or SettingsError."""
    vectors, record = read_checkpoint(path)
    shards = record.get("lineage", {}).get("shard", {}).get("addresses", ())
    if len(shards) > 1:
        raise CheckpointError(f"{path}: is of one of {len(shards)} shards alone; give the folder of their run")
    try:
        schema, weights = Schema.from_list(record["schema"]), vectors["weights"]
        schema.views(weights)  # raises if the lengths differ
        return run_from_dict(record["run"], source=str(path)), schema, weights, record
    except (KeyError, SchemaMismatch) as error:
        raise CheckpointError(f"{path}: was written by another version of ps-rl: {error}") from error


def _digest(vectors: dict[str, Tensor], record: str) -> str:
    digest = xxhash.xxh3_128(record.encode())
    for name, vector in sorted(vectors.items()):
        digest.update(f"{name} {vector.dtype} {list(vector.shape)}".encode())
        digest.update(vector.contiguous().reshape(-1).numpy().data.cast("B"))
    return digest.hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
