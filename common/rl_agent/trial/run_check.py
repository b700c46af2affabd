"""
Whether a run can be trained on this machine, checked before anything is started for it.

The check makes two environments as a worker would, and plays a game at random. Torch takes seconds to load: what needs
none of it is imported without it.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

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


def check_run(run: RunSpec, *, imports: Sequence[str]) -> list[str]:
    """
    The lines of the start card, and of warnings.

    Raises SettingsError when a worker could not make or step the run's environment, or learn in it.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with tried(f"--environment {run.environment.id}"):
            card = _try(run, imports)
    secrets = [f"{name}: {SECRET}" for name in secrets_in(run)]
    return [*card, *(card_line("warning", text) for text in [*secrets, *gymnasium_warnings(warned)])]


def custom_settings(path: str, given: Mapping[str, Any], without_it: Sequence[msgspec.Struct]) -> msgspec.Struct:
    """The settings of a custom algorithm. It loads torch, as such an algorithm does. Raises SettingsError."""
    from rl_agent.algorithms import custom_algorithm

    return custom_algorithm.custom_settings(path, given, without_it)


def check_device(device: str) -> None:
    """Raises SettingsError when there is no such device."""
    if device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise SettingsError("--device cuda: torch sees no GPU here; use --device cpu, or install a CUDA build of torch")


def _try(run: RunSpec, imports: Sequence[str]) -> list[str]:
    # These load Gymnasium and torch, which take a second each.
    from rl_agent.agent import planned_schema
    from rl_agent.environments.custom_environment import makes_vectors
    from rl_agent.networks.compatibility import check_agent

    for module in imports:
        import_named(module, flag=f"--import {module}")
    settings, most = run.environment, min(2, run.environment.envs) if run.environment.family == GYMNASIUM else 1
    fewest = most if is_import_path(settings.id) and makes_vectors(settings.id) else 1
    environments = played(settings, fewest)
    if fewest < most:
        close_logged(environments)
        hint = "two were made in this process, as --envs 2 or more does; --envs 1 makes one"
        environments = played(settings, most, hint=hint)
    with closing(environments):
        check_agent(run, environments)
        schema = _try_agent(run, environments) if run.agent_parts else planned_schema(run, environments)
        return [*start_card(run, environments), card_line("parameters", f"{schema.size:,}")]


def played(settings: Environment, count: int, *, hint: str = "") -> Environments:
    """`count` environments that were played at random until a game has ended or time is up. Raises SettingsError."""
    most_steps = MOST_STEPS if settings.family == GYMNASIUM else 1
    try:
        with tried(f"--environment {settings.id}", hint=hint):
            environments = make_environments(settings, count=count)
            with closed_if_refused(environments):
                end = time.monotonic() + MOST_SECONDS
                for stepped in islice(random_play(environments, seed=SEED), most_steps):
                    if stepped.ended.any() or time.monotonic() > end:
                        break
    except SettingsError:
        raise
    except PsRlError as error:  # such as one of a number that nothing can be learned from
        raise SettingsError(f"--environment {error}") from error
    return environments


def _try_agent(run: RunSpec, environments: Environments) -> Schema:
    """One unroll and one gradient with a custom network or algorithm. Raises SettingsError that names its flag."""
    from rl_agent.trial.agent_check import check_custom_agent

    part = run.agent_parts[-1]
    flag = f"--network {part}" if part == run.network.name else f"--algorithm {part}"
    with tried(flag):
        return check_custom_agent(run, environments, flag=flag)
