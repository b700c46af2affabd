"""`rl-eval --export`: everything that an exported policy consists of, in a new folder."""

from pathlib import Path

from torch import nn

from ps_common.errors import SettingsError
from rl_agent.environments.interface import Environments
from rl_eval.games import Result
from rl_eval.model_card import model_card
from rl_eval.onnx_file import write_onnx
from rl_eval.policy_folder import CARD, MODEL, ONNX, RECEIPT, SETTINGS, NewFolder, write_model
from rl_eval.receipt import Receipt, write_receipt
from rl_eval.trained import Trained


def write_policy(
    path: Path,
    trained: Trained,
    network: nn.Module,
    environments: Environments,
    receipt: Receipt,
    result: Result,
    *,
    has_onnx: bool,
) -> None:
    """Write the folder, which appears whole or not at all. Raises SettingsError."""
    steps, minutes = trained.global_steps, trained.minutes
    card = model_card(trained.run, environments, result, global_steps=steps, minutes=minutes, sha256=trained.sha256)
    try:
        with NewFolder(path) as folder:
            write_model(
                folder / MODEL,
                trained.run,
                trained.schema,
                trained.weights,
                environments,
                global_steps=steps,
                minutes=minutes,
            )
            (folder / SETTINGS).write_text(trained.run.to_toml(), encoding="utf-8")
            (folder / CARD).write_text(card, encoding="utf-8")
            write_receipt(folder / RECEIPT, receipt)
            if has_onnx:
                write_onnx(folder / ONNX, network, environments.observations)
    except OSError as error:
        raise SettingsError(f"--export {path}: cannot be written: {error.strerror or error}") from error
