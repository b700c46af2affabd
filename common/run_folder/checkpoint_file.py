"""
One checkpoint is one safetensors file: the vectors as tensors, everything else as JSON in its metadata.

It appears whole or not at all (written in a hidden folder, flushed to disk, renamed), and carries a checksum over its
content, so that a damaged file is recognised when it is read. (It keeps nobody from forging one.) What a killed process
leaves half-written lies in the hidden folder, and nowhere else.
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
        beside.chmod(0o644)  # the library makes it for its owner alone; the run's other files are for everybody
        _flush(beside)
        beside.rename(path)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    finally:
        remove_unfinished(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove what was not written to its end in a folder of checkpoints; nobody may be writing there meanwhile."""
    shutil.rmtree(folder / WRITING, ignore_errors=True)  # a disk that takes no file may take no removal either


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """
    The vectors and the record.

    Raises DamagedCheckpoint, or another CheckpointError when the file cannot be read or is something else.
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
    try:
        schema, weights = Schema.from_list(record["schema"]), vectors["weights"]
        schema.views(weights)  # raises when they do not belong together
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
    """Until it is on the disk: a file's content, or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
