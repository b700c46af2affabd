"""
An exported policy: a folder in the form that model hubs use.

- `model.safetensors`: each tensor of the network by its name; settings, spaces and training steps in its metadata.
- `settings.toml`: the settings of the run, for --config.
- `README.md`: the model card.
- `receipt.json`: the evaluated games, for `rl-eval --verify`. `model.onnx`: the network, where it was asked for.

The folder appears whole or not at all.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from common.errors import CheckpointError, SchemaMismatch
from common.protocol.tensors import Schema
from common.settings.run_settings import run_from_dict, with_settings
from common.settings.run_spec import RunSpec
from rl_worker.environments.spaces import Spaces
from rl_worker.export.spaces_record import PolicySpaces, from_record, to_record
from rl_worker.networks.flat_network import flatten

FORMAT = "ps-rl policy 1"
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
    record = {
        "run": acting.to_dict(),
        "schema": Schema(spec for spec in schema.specs if spec.name in tensors).to_list(),
        "spaces": to_record(spaces),
        "global_steps": global_steps,
        "minutes": minutes,
    }
    safetensors.torch.save_file(tensors, path, {"format": FORMAT, "record": json.dumps(record)})
    path.chmod(0o644)  # the library makes it readable by its owner alone


def read_model(path: Path) -> ExportedPolicy:
    """The policy in a model.safetensors, or in the folder that holds it. Raises CheckpointError or SettingsError."""
    path = path / MODEL if path.is_dir() else path
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{path}: is not a {FORMAT}")
            record: dict[str, Any] = json.loads(metadata["record"])
            schema = Schema.from_list(record["schema"])
            weights = flatten({spec.name: file.get_tensor(spec.name) for spec in schema.specs})
        schema.views(weights)  # raises if the lengths differ
        run = run_from_dict(record["run"], source=str(path))
        spaces = from_record(record["spaces"], run.environment)
        return ExportedPolicy(run, schema, weights, spaces, record["global_steps"], record["minutes"], str(path))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    except (SafetensorError, SchemaMismatch, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: is damaged, or of another version of ps-rl: {error}") from error


class NewFolder:
    """A folder that takes its name when it is complete: `with NewFolder(path) as place` writes into `place`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.with_name(f".{path.name}.unfinished")

    def __enter__(self) -> Path:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir(parents=True)
        return self._place

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self._place.rename(self._path)
        else:
            shutil.rmtree(self._place, ignore_errors=True)
