"""
An exported policy: a folder in the form that model hubs use.

- `model.safetensors`: each tensor of the network by its name; settings, spaces and training steps in its metadata.
- `settings.toml`: the settings of the run, for --config.
- `README.md`: the model card.
- `receipt.json`: the evaluated games, for `rl-eval --verify`. `model.onnx`: the network, where it was asked for.

The folder appears whole or not at all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, SchemaMismatch
from ps_common.protocol.messages import Run
from ps_common.protocol.names import Count
from ps_common.protocol.record import Minutes, check_format, is_finite
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.regular_file import MOST_FILE_BYTES, check_regular
from ps_common.settings.run_settings import run_from_dict, with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.spaces import Spaces
from rl_agent.networks.flat_network import flatten
from rl_eval.spaces_record import PolicySpaces, SpacesRecord, from_record, to_record

KIND, FORMAT = "policy", 1
RETURNS = "returns."  # the network's ReturnNormalization
MODEL, SETTINGS, CARD, RECEIPT, ONNX = "model.safetensors", "settings.toml", "README.md", "receipt.json", "model.onnx"


@dataclass(frozen=True)
class ExportedPolicy:
    """The content of model.safetensors."""

    run: RunSpec
    schema: Schema
    weights: Tensor  # [P]
    spaces: PolicySpaces
    global_steps: int  # of training
    minutes: float  # likewise
    origin: str  # the file or server, for messages


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands beside the tensors, as JSON. `run` is checked by run_from_dict, which knows the settings."""

    run: Run
    schema: tuple[TensorSpec, ...]
    spaces: SpacesRecord
    global_steps: Count
    minutes: Minutes


def write_model(
    path: Path,
    run: RunSpec,
    schema: Schema,
    weights: Tensor,
    spaces: Spaces,
    *,
    global_steps: int,
    minutes: float,
) -> None:
    """
    Write model.safetensors: the network that acts, with its normalization of observations.

    The statistics of returns, which only learning needs, are left out, and so is the setting that asks for them.
    """
    tensors = {name: view.clone() for name, view in schema.views(weights).items() if not name.startswith(RETURNS)}
    has_returns = len(tensors) < len(schema.specs)
    acting = with_settings(run, {"algorithm.reward_normalization": "none"}, source=str(path)) if has_returns else run
    record = PolicyRecord(
        run=acting.to_dict(),
        schema=tuple(spec for spec in schema.specs if spec.name in tensors),
        spaces=to_record(spaces),
        global_steps=global_steps,
        minutes=minutes,
    )
    metadata = {"format": f"ps-rl {KIND} {FORMAT}", "record": msgspec.json.encode(record).decode()}
    safetensors.torch.save_file(tensors, path, metadata)
    path.chmod(0o644)  # the library makes it readable by its owner alone


def read_model(path: Path) -> ExportedPolicy:
    """The policy in a model.safetensors, or in the folder that holds it. Raises CheckpointError or SettingsError."""
    path = path / MODEL if path.is_dir() else path
    try:
        check_regular(path, most_bytes=MOST_FILE_BYTES)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            check_format(metadata.get("format", ""), KIND, newest=FORMAT, oldest=FORMAT)
            record = msgspec.json.decode(metadata.get("record", ""), type=PolicyRecord)
            schema = Schema(record.schema)
            weights = flatten({spec.name: _tensor(file, spec) for spec in schema.specs})
        if not is_finite(weights):
            raise ValueError("the weights hold NaN or Inf")
        run = run_from_dict(record.run, source=str(path))
        spaces = from_record(record.spaces, run.environment)
        return ExportedPolicy(run, schema, weights, spaces, record.global_steps, record.minutes, str(path))
    except CheckpointError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SafetensorError, SchemaMismatch, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is damaged, because it cannot be read: {error}") from error


def _tensor(file: Any, spec: TensorSpec) -> Tensor:
    tensor: Tensor = file.get_tensor(spec.name)
    if tuple(tensor.shape) != spec.shape or tensor.dtype != torch.float32:
        raise ValueError(f"its tensor {spec} is {tensor.dtype} {list(tensor.shape)}")
    return tensor
