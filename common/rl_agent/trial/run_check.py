"""
Whether a run can be trained on this machine, checked before anything is started for it.

The check makes two environments as a worker would, and plays a game. rl-cluster checks in a separate process: an
environment that crashes ends that process alone, and its memory is freed. Torch takes seconds to load: that process is
a fork of one that has it, as workers are, and what is needed elsewhere is imported without it.
"""

import contextlib
import ctypes
import socket
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.reasons import say
from ps_common.program.start import start
from ps_common.protocol.names import bare_host, is_ipv6, join_address
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_settings import run_from_dict, secrets_in
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.imports import gymnasium_warnings, import_named, tried
from rl_agent.environments.interface import Environments
from rl_agent.trial.hooks import Hooks
from rl_agent.trial.start_card import card_line, start_card

PROGRAM = "rl-cluster"  # which starts it as a process
SLOW_SECONDS = 10.0  # after which the user is told that the trial goes on
SECRET = (
    "looks like a secret, and the run's files, checkpoints and messages to workers have it as it is: take it from a "
    "variable of the environment instead. The page, trackers, logs and exports hide it"
)
# A machine with a GPU driver has one of these.
NVIDIA_LIBRARY = "libcuda.so.1"
AMD_DEVICE = Path("/dev/kfd")


def check_apart(
    run: RunSpec, *, imports: Sequence[str], device: str, hooks: Sequence[str] = (), resumed: Path | None = None
) -> list[str]:
    """
    The checks below, and of hooks, in a separate process. Returns the lines of the start card. Raises SettingsError.
    """
    arguments = [run.to_toml(), device, str(resumed or ""), *imports, "--hook", *hooks]
    with tempfile.NamedTemporaryFile() as output:
        child = Child("rl_agent.trial.run_check", arguments, Path(output.name))
        try:
            if not child.wait(within_seconds=SLOW_SECONDS):
                print(f"{run.environment.id} is tried for more than {SLOW_SECONDS:.0f} s by now; Ctrl-C ends that")
                child.wait()
        finally:
            child.end(within_seconds=0)
    if child.has_done_its_work and child.reason is not None:
        return child.reason.text.splitlines()
    has_said_why = child.reason is not None and child.reason.is_failure
    at_once = "" if has_said_why else f"--environment {run.environment.id}: a trial of it ended at once: "
    raise SettingsError(at_once + child.cause_of_death())


def _check() -> int:
    """
    The separate process, whose reason to leave is the start card. Its arguments are the run as TOML, the device, the
    folder of a resumed run or "", imports, --hook, hooks.
    """
    settings, device, resumed, *named = sys.argv[1:]
    imports, hooks = named[: named.index("--hook")], named[named.index("--hook") + 1 :]
    run = run_from_dict(tomllib.loads(settings), source="rl-cluster")
    check_device(device)
    for path in hooks:
        with tried(f"--hook {path}"):
            Hooks([path])
    card = check_run(run, imports=imports, with_screen=run.records.gif_every_episodes > 0, resumed=resumed)
    say("over", "\n".join(card))
    return 0


def check_run(run: RunSpec, *, imports: Sequence[str], with_screen: bool = False, resumed: str = "") -> list[str]:
    """
    The lines of the start card, and of warnings. `resumed` is the folder of the run whose weights it goes on with.

    Raises SettingsError when a worker could not make, step or show the run's environment, or learn in it.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with tried(f"--environment {run.environment.id}"):
            card = _try(run, imports, with_screen, resumed)
    secrets = [f"{name}: {SECRET}" for name in secrets_in(run)]
    return [*card, *(card_line("warning", text) for text in [*secrets, *gymnasium_warnings(warned)])]


def custom_settings(path: str, given: Mapping[str, Any], without_it: Sequence[msgspec.Struct]) -> msgspec.Struct:
    """The settings of a custom algorithm. It loads torch, as such an algorithm does. Raises SettingsError."""
    from rl_agent.algorithms import custom_algorithm

    return custom_algorithm.custom_settings(path, given, without_it)


def check_listening(host: str, port: int) -> None:
    """Raises SettingsError when this address cannot be listened at; port 0 is a free port."""
    where = f"--host {host} --port {port}: cannot listen there"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            "0.0.0.0" if host == "*" else bare_host(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:  # an unknown name, too
        raise SettingsError(f"{where}: {error.strerror}") from error


def shard_addresses(host: str, port: int, shards: int) -> list[str]:
    """Addresses for so many servers: from `port` on, or on ports that are free now. Raises SettingsError."""
    if port:
        for further in range(port, port + shards):
            check_listening(host, further)
        return [join_address(bare_host(host), further) for further in range(port, port + shards)]
    with contextlib.ExitStack() as stack:
        family = socket.AF_INET6 if is_ipv6(bare_host(host)) else socket.AF_INET
        probes = [stack.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(shards)]
        for probe in probes:
            probe.bind((bare_host(host), 0))
        return [join_address(bare_host(host), probe.getsockname()[1]) for probe in probes]


def check_device(device: str) -> None:
    """Raises SettingsError when there is no such device."""
    if device != "cuda" or (_has_driver() and _torch_sees_a_gpu()):
        return
    raise SettingsError("--device cuda: torch sees no GPU here; use --device cpu, or install a CUDA build of torch")


def _try(run: RunSpec, imports: Sequence[str], with_screen: bool, resumed: str) -> list[str]:
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
    if run.environment.family == "gymnasium":
        check_environment(run.environment)
        count, steps = min(2, run.environment.envs), MOST_STEPS
        hint = "two were made in this process, as --envs 2 or more does; --envs 1 makes one" if count > 1 else ""
    with ExitStack() as opened:
        with tried(f"--environment {run.environment.id}", hint=hint):
            environments = make_environments(run.environment, count=count, with_screen=with_screen)
            opened.callback(close_logged, environments)
            check_agent(run, environments)
            schema = None if run.agent_parts else planned_schema(run, environments)
            play(environments, most_steps=steps)
        if with_screen:
            environments.screen()
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


if __name__ == "__main__":
    start("rl_agent.trial.run_check", "_check")
