"""
Whether a run can be trained on this machine, checked before anything is started for it.

The check makes two environments as a worker would, and plays a game. rl-cluster checks in a separate process: an
environment that crashes ends that process alone, and its memory is freed. Torch takes seconds to load, so it is loaded
only to look for a GPU.
"""

import contextlib
import ctypes
import socket
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from common.errors import PsRlError, SettingsError
from common.program.child_processes import child_environment, die_with_parent, how_it_ended
from common.protocol.addresses import bare_host, is_ipv6, join_address
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import RunSpec
from rl_worker.environments.imports import import_named
from rl_worker.environments.interface import Environments
from rl_worker.hooks.hooks import Hooks
from rl_worker.local.own_errors import gymnasium_warnings, tried
from rl_worker.local.start_card import card_line, start_card

REFUSED_STATUS = 3  # exit status of the checking process when it has printed why
CARD_BEGINS = "--- start card ---"  # environments may print, too
# A machine with a GPU driver has one of these.
NVIDIA_LIBRARY = "libcuda.so.1"
AMD_DEVICE = Path("/dev/kfd")


def check_apart(
    run: RunSpec, *, imports: Sequence[str], device: str, render: bool, hooks: Sequence[str] = ()
) -> list[str]:
    """
    The checks below, and of hooks, in a separate process. Returns the lines of the start card; `render`: check for a
    window too.

    Raises SettingsError.
    """
    command = [
        sys.executable,
        "-P",
        "-c",
        "from rl_worker.__main__ import check; check()",
        device,
        str(render),
        *imports,
    ]
    checked = subprocess.run(
        [*command, "--hook", *hooks],
        input=run.to_toml(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=child_environment(),
        check=False,
        preexec_fn=die_with_parent,
    )
    if checked.returncode == REFUSED_STATUS:
        raise SettingsError(checked.stdout.strip().splitlines()[-1])
    if checked.returncode:
        last_line = checked.stderr.strip().splitlines()[-1:]
        why = "".join(last_line) if checked.returncode > 0 else how_it_ended(checked.returncode)
        raise SettingsError(f"--environment {run.environment.id}: a trial of it ended at once: {why}")
    return checked.stdout.rpartition(CARD_BEGINS)[2].strip("\n").splitlines()


def main() -> NoReturn:
    """
    The separate process: the run comes as TOML on standard input. The end of its output is the start card, or its last
    line says what is wrong.
    """
    device, render, *named = sys.argv[1:]
    imports, hooks = named[: named.index("--hook")], named[named.index("--hook") + 1 :]
    run = run_from_dict(tomllib.loads(sys.stdin.read()), source="rl-cluster")
    is_shown = render == str(True)
    try:
        check_device(device)
        for path in hooks:
            with tried(f"--hook {path}"):
                Hooks([path])
        if is_shown:
            _check_window(run)
        card = check_run(run, imports=imports, with_screen=is_shown or run.records.gif_every_episodes > 0)
    except PsRlError as error:
        print(" ".join(str(error).split()), flush=True)
        sys.exit(REFUSED_STATUS)
    print(CARD_BEGINS, *card, sep="\n", end="", flush=True)
    sys.exit(0)


def check_run(run: RunSpec, *, imports: Sequence[str], with_screen: bool) -> list[str]:
    """
    The lines of the start card, and of warnings.

    Raises SettingsError when a worker could not make, step or show the run's environment, or learn in it.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with tried(f"--environment {run.environment.id}"):
            card = _try(run, imports, with_screen)
    return [*card, *(card_line("warning", text) for text in gymnasium_warnings(warned))]


def own_settings(path: str, given: Mapping[str, Any], without_it: Sequence[msgspec.Struct]) -> msgspec.Struct:
    """The settings of a user's own algorithm. It loads torch, as such an algorithm does. Raises SettingsError."""
    from rl_worker.algorithms import own_algorithm

    return own_algorithm.own_settings(path, given, without_it)


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


def _try(run: RunSpec, imports: Sequence[str], with_screen: bool) -> list[str]:
    # These load Gymnasium, which takes a second.
    from rl_worker.environments.make import make_environments
    from rl_worker.local.environment_check import MOST_STEPS, check_environment, play
    from rl_worker.networks.compatibility import check_agent

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
            opened.callback(environments.close)
            check_agent(run, environments)
            play(environments, most_steps=steps)
        if with_screen:
            environments.screen()
        if run.agent_parts:
            _try_agent(run, environments)
        return start_card(run, environments)


def _try_agent(run: RunSpec, environments: Environments) -> None:
    """One unroll and one gradient with a user's own network or algorithm. Raises SettingsError that names its flag."""
    from rl_worker.local.agent_check import check_own_agent  # loads torch

    part = run.agent_parts[-1]
    flag = f"--network {part}" if part == run.network.name else f"--algorithm {part}"
    with tried(flag):
        check_own_agent(run, environments, flag=flag)


def _check_window(run: RunSpec) -> None:
    from rl_worker.play.window import Window

    Window(run.environment.id).close()


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
