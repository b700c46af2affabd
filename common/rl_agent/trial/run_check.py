"""
Whether a run can be trained on this machine, checked before anything is started for it.

The check makes two environments as a worker would, and plays a game at random. Torch takes seconds to load: what needs
none of it is imported without it.
"""

import ctypes
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ps_common.errors import PsRlError, SettingsError
from ps_common.protocol.names import is_import_path
from ps_common.protocol.tensors import Schema
from ps_common.settings.families import GYMNASIUM
from ps_common.settings.run_settings import secrets_in
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.environments.imports import gymnasium_warnings, import_named, tried
from rl_agent.environments.interface import Environments, close_logged, closed_if_refused, random_play
from rl_agent.environments.make import closing, make_environments
from rl_agent.trial.start_card import card_line, start_card

SEED = 0
MOST_STEPS = 1000  # a game that is tried ends after these steps
MOST_SECONDS = 1.0  # or after this time, whichever is first
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
    from rl_agent.environments.custom_environment import makes_vectors
    from rl_agent.networks.compatibility import check_agent
    from rl_agent.trial.weights_check import check_weights

    for module in imports:
        import_named(module, flag=f"--import {module}")
    settings, most = run.environment, min(2, run.environment.envs) if run.environment.family == GYMNASIUM else 1
    with tried(f"--environment {settings.id}"):
        fewest = most if is_import_path(settings.id) and makes_vectors(settings.id) else 1
    try:
        environments = played(settings, fewest)
    except PsRlError as error:
        raise _blamed(settings, fewest, error) from error
    if fewest < most:
        close_logged(environments)
        hint = "two were made in this process, as --envs 2 or more does; --envs 1 makes one"
        environments = played(settings, most, hint=hint)
    with closing(environments):
        check_agent(run, environments)
        schema = _try_agent(run, environments) if run.agent_parts else planned_schema(run, environments)
        check_weights(run, schema, resumed=resumed)
        return [*start_card(run, environments), card_line("parameters", f"{schema.size:,}")]


def played(settings: Environment, count: int, *, hint: str = "") -> Environments:
    """`count` environments that were played at random until a game has ended or time is up. Raises PsRlError."""
    most_steps = MOST_STEPS if settings.family == GYMNASIUM else 1
    with tried(f"--environment {settings.id}", hint=hint):
        environments = make_environments(settings, count=count)
        with closed_if_refused(environments):
            end = time.monotonic() + MOST_SECONDS
            for stepped in islice(random_play(environments, seed=SEED), most_steps):
                if stepped.terminated.any() or stepped.truncated.any() or time.monotonic() > end:
                    break
    return environments


def _blamed(settings: Environment, count: int, error: PsRlError) -> SettingsError:
    """The error of environments that cannot be played. It names the wrapper without which they can be."""
    can_be_played = False
    for number in range(len(settings.wrapper) + 1):
        try:
            close_logged(played(structs.replace(settings, wrapper=settings.wrapper[:number]), count))
            can_be_played = True
        except PsRlError as found:
            if can_be_played:
                flag = f"--wrapper {settings.wrapper[number - 1]}: "
                why = _text(found).removeprefix(flag).removeprefix(f"--environment {settings.id}: ")
                return SettingsError(flag + why)
    return SettingsError(_text(error))


def _text(error: PsRlError) -> str:
    """The error, which begins with a flag."""
    return str(error) if isinstance(error, SettingsError) else f"--environment {error}"


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
