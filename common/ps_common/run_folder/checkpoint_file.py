"""
One checkpoint is one safetensors file: the vectors as tensors, everything else as JSON in its metadata.

The file appears whole or not at all: it is written in a hidden folder, flushed to disk, and renamed. A killed process
leaves unfinished files in the hidden folder alone. A checksum of the content shows damage when the file is read;
an attacker can forge both.
"""

import shutil
from pathlib import Path

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, DamagedCheckpoint
from ps_common.protocol.record import (
    FORMAT,
    KIND,
    Record,
    RecordWriter,
    check_format,
    check_vectors,
    record_from_json,
    release_in,
)
from ps_common.run_folder.paths import WRITING
from ps_common.run_folder.policy_file import reading
from ps_common.settings.regular_file import flush, made_empty, made_folder

Checkpoint = tuple[dict[str, Tensor], Record]


def write_checkpoint(
    path: Path, vectors: dict[str, Tensor], record: Record, *, writer: RecordWriter | None = None
) -> None:
    """
    Write the vectors (float32, CPU) and the record as `path`; `writer` is that of earlier records of the run, if any.

    Raises CheckpointError when the disk refuses, or when the record could not be read again, since later checkpoints
    displace earlier ones. `path` is then as it was.
    """
    try:
        text = (writer or RecordWriter()).json(record)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: is not written, since it {error}") from error
    metadata = {"format": f"ps-rl {KIND} {FORMAT}", "record": text.decode(), "xxh3_128": _digest(vectors, text)}
    beside = path.parent / WRITING / path.name
    try:
        made_folder(beside.parent)
        mode = made_empty(beside)
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


def read_checkpoint(path: Path) -> Checkpoint:
    """
    The vectors and the record, each checked.

    Raises DamagedCheckpoint, OtherFormat, or another CheckpointError when the file cannot be read.
    """
    with reading(path), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        text = metadata.get("record", "").encode()
        check_format(metadata.get("format", ""), KIND, release=release_in(text))
        vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the file is not a mapping)
        if metadata.get("xxh3_128") != _digest(vectors, text):
            raise DamagedCheckpoint("is damaged, because its content does not match its checksum")
        record = record_from_json(text)
        check_vectors(vectors, record)
    return vectors, record


def _digest(vectors: dict[str, Tensor], record: bytes) -> str:
    digest = xxhash.xxh3_128(record)
    for name, vector in sorted(vectors.items()):
        digest.update(f"{name} {vector.dtype} {list(vector.shape)}".encode())
        digest.update(vector.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
