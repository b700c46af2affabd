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

import msgspec
import safetensors.torch
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.tensors import Schema
from ps_common.release import release
from ps_common.run_folder.policy_file import FORMAT, KIND, MODEL, NATIVE, PolicyRecord, read_policy
from ps_common.settings.regular_file import made_empty
from ps_common.settings.run_settings import run_for_peers, with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.spaces import Spaces
from rl_eval.native.record import NativeRecord, native_to_record, with_native
from rl_eval.spaces_record import PolicySpaces, SpacesRecord, from_record, to_record

RETURNS = "returns."  # the network's ReturnNormalization
SETTINGS, CARD, RECEIPT, ONNX = "settings.toml", "README.md", "receipt.json", "model.onnx"


@dataclass(frozen=True)
class ExportedPolicy:
    """The content of model.safetensors."""

    run: RunSpec
    schema: Schema
    weights: Tensor  # [P]
    spaces: PolicySpaces
    global_steps: int  # of training
    minutes: float  # of training
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
    record = PolicyRecord(
        run=run_for_peers(acting),
        schema=tuple(spec for spec in schema.specs if spec.name in tensors),
        spaces=msgspec.Raw(msgspec.json.encode(to_record(spaces))),
        global_steps=global_steps,
        minutes=minutes,
    )
    text = msgspec.json.encode(record).decode()
    metadata = {"format": f"ps-rl {KIND} {FORMAT}", "release": release(), "record": text}
    if (native := native_to_record(spaces.observations)) is not None:
        metadata[NATIVE] = msgspec.json.encode(native).decode()
    mode = made_empty(path)
    safetensors.torch.save_file(tensors, path, metadata)
    path.chmod(mode)


def read_model(path: Path) -> ExportedPolicy:
    """The policy in a model.safetensors, or in the folder that holds it. Raises CheckpointError or SettingsError."""
    path = path / MODEL if path.is_dir() else path
    record, run, schema, weights = read_policy(path)
    try:
        spaces = from_record(msgspec.json.decode(record.spaces, type=SpacesRecord), run.environment)
        spaces = with_native(spaces, msgspec.json.decode(record.native, type=NativeRecord | None))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is damaged, because it cannot be read: {error}") from error
    return ExportedPolicy(run, schema, weights, spaces, record.global_steps, record.minutes, str(path))
