"""
Whether a run can be trained on this machine, checked before anything is started for it.

The check makes two environments as a worker would, and plays a game. Torch takes seconds to load: what needs none of it
is imported without it.
"""

import ctypes
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.tensors import Schema
from ps_common.settings.families import GYMNASIUM
from ps_common.settings.run_settings import secrets_in
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.imports import gymnasium_warnings, import_named, tried
from rl_agent.environments.interface import Environments
from rl_agent.trial.start_card import card_line, start_card

SECRET = (
    "looks like a secret, and the run's files, checkpoints and messages to workers have it as it is: take it from a "
    "variable of the environment instead. The page, trackers, logs and exports hide it"
)
# A machine with a GPU driver has one of these.
NVIDIA_LIBRARY = "libcuda.so.1"
AMD_DEVICE = Path("/dev/kfd")


def check_run(run: RunSpec, *, imports: Sequence[str], resumed: str = "") -> list[str]:
    """
    The lines of the start card, and of warnings. `resumed` is the folder of the run whose weights it goes on with.

    Raises SettingsError when a worker could not make or step the run's environment, or learn in it.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with tried(f"--environment {run.environment.id}"):
            card = _try(run, imports, resumed)
    secrets = [f"{name}: {SECRET}" for name in secrets_in(run)]
    return [*card, *(card_line("warning", text) for text in [*secrets, *gymnasium_warnings(warned)])]


def custom_settings(path: str, given: Mapping[str, Any], without_it: Sequence[msgspec.Struct]) -> msgspec.Struct:
    """The settings of a custom algorithm. It loads torch, as such an algorithm does. Raises SettingsError."""
    from rl_agent.algorithms import custom_algorithm

    return custom_algorithm.custom_settings(path, given, without_it)


def check_device(device: str) -> None:
    """Raises SettingsError when there is no such device."""
    if device != "cuda" or (_has_driver() and _torch_sees_a_gpu()):
        return
    raise SettingsError("--device cuda: torch sees no GPU here; use --device cpu, or install a CUDA build of torch")


def _try(run: RunSpec, imports: Sequence[str], resumed: str) -> list[str]:
    # These load Gymnasium and torch, which take a second each.
    from rl_agent.agent import planned_schema
    from rl_agent.environments.interface import close_logged
    from rl_agent.environments.make import make_environments
    from rl_agent.networks.compatibility import check_agent
    from rl_agent.trial.environment_check import MOST_STEPS, check_environment, play
    from rl_agent.trial.weights_check import check_weights

    for module in imports:
        import_named(module, flag=f"--import {module}")
    count, steps, hint = 1, 1, ""
    if run.environment.family == GYMNASIUM:
        check_environment(run.environment)
        count, steps = min(2, run.environment.envs), MOST_STEPS
        hint = "two were made in this process, as --envs 2 or more does; --envs 1 makes one" if count > 1 else ""
    with ExitStack() as opened:
        with tried(f"--environment {run.environment.id}", hint=hint):
            environments = make_environments(run.environment, count=count)
            opened.callback(close_logged, environments)
            check_agent(run, environments)
            schema = None if run.agent_parts else planned_schema(run, environments)
            play(environments, most_steps=steps)
        schema = schema or _try_agent(run, environments)
        check_weights(run, environments, schema, resumed=resumed)
        return [*start_card(run, environments), card_line("parameters", f"{schema.size:,}")]


def _try_agent(run: RunSpec, environments: Environments) -> Schema:
    """One unroll and one gradient with a custom network or algorithm. Raises SettingsError that names its flag."""
    from rl_agent.trial.agent_check import check_custom_agent

    part = run.agent_parts[-1]
    flag = f"--network {part}" if part == run.network.name else f"--algorithm {part}"
    with tried(flag):
        return check_custom_agent(run, environments, flag=flag)


def _has_driver() -> bool:
    """Whether a GPU may be there; quicker than loading torch."""
    if sys.platform != "linux":
        return True
    try:
        ctypes.CDLL(NVIDIA_LIBRARY)
    except OSError:
        return AMD_DEVICE.exists()
    return True


def _torch_sees_a_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
