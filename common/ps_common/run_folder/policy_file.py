"""
The file of an exported policy, `model.safetensors`: each tensor of the network by its name; settings, spaces and
training steps in its metadata. Reading it needs torch, safetensors and msgspec, and no more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, DamagedCheckpoint, SchemaMismatch
from ps_common.protocol.messages import Run
from ps_common.protocol.names import Count, Minutes, as_text
from ps_common.protocol.record import check_format, is_finite
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.regular_file import MOST_FILE_BYTES, NOT_REGULAR, check_regular
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec

KIND, FORMAT = "policy", 1
MODEL = "model.safetensors"
NATIVE = "native"  # the key of its metadata


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The metadata of the tensors, as JSON. `run` is checked by run_from_dict, `spaces` by who builds an agent."""

    run: Run
    schema: tuple[TensorSpec, ...]
    spaces: msgspec.Raw
    global_steps: Count
    minutes: Minutes
    # What the environment shows. It stands in metadata of its own, where earlier releases do not look.
    native: msgspec.Raw = msgspec.Raw(b"null")


def read_policy(path: Path) -> tuple[PolicyRecord, RunSpec, Schema, Tensor]:
    """The record, the run, the schema and the weights [P] in a model.safetensors. Raises CheckpointError."""
    with reading(path), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        written_by = as_text(metadata.get("release", ""))
        check_format(metadata.get("format", ""), KIND, newest=FORMAT, oldest=FORMAT, release=written_by)
        record = msgspec.json.decode(metadata.get("record", ""), type=PolicyRecord)
        native = msgspec.Raw(metadata.get(NATIVE, "null").encode())
        record = msgspec.structs.replace(record, native=native)
        schema = Schema(record.schema)
        weights = torch.cat([_tensor(file, spec).reshape(-1) for spec in schema.specs])
        if not is_finite(weights):
            raise ValueError("the weights hold NaN or Inf")
    return record, run_from_dict(record.run, source=str(path)), schema, weights


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """
    For a library that reads a file of tensors in this block. Raises CheckpointError that names the file;
    DamagedCheckpoint where the content is not what was written, or the path is not a regular file.
    """
    try:
        check_regular(path, most_bytes=MOST_FILE_BYTES)
        yield
    except CheckpointError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        kind = DamagedCheckpoint if error.errno in NOT_REGULAR else CheckpointError
        # safe_open reports any failure to open a file as one that is missing, without an errno.
        raise kind(f"{path}: cannot be read: {error.strerror or 'it cannot be opened'}") from error
    except (SafetensorError, SchemaMismatch, ValueError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path}: {as_text(f'is damaged, because it cannot be read: {error}')}") from error
    except RuntimeError as error:  # torch could not open or map the file
        raise CheckpointError(f"{path}: {as_text(f'cannot be read: {error}')}") from error


def _tensor(file: Any, spec: TensorSpec) -> Tensor:
    tensor: Tensor = file.get_tensor(spec.name)
    if tuple(tensor.shape) != spec.shape or tensor.dtype != torch.float32:
        raise ValueError(f"its tensor {spec} is {tensor.dtype} {list(tensor.shape)}")
    return tensor
