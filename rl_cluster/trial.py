"""
The trial of a run in a separate process, before anything is started for it. An environment that crashes ends only
that process, and its memory is freed. The process is a fork of one that has loaded torch, as workers are.
"""

import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ps_common.errors import SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.reasons import report_reason
from ps_common.program.start import start
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.imports import tried
from rl_agent.trial.hooks import Hooks
from rl_agent.trial.run_check import check_device, check_run

PROGRAM = "rl-cluster"  # which starts it as a process
MODULE = "rl_cluster.trial"
SLOW_SECONDS = 10.0  # after which the user is told that the trial goes on


def check_apart(run: RunSpec, *, imports: Sequence[str], device: str, hooks: Sequence[str] = ()) -> list[str]:
    """
    The checks of rl_agent/trial/run_check.py, and of hooks, in a separate process. Returns the lines of the start card.

    Raises SettingsError.
    """
    arguments = [run.to_toml(), device, *imports, "--hook", *hooks]
    with tempfile.NamedTemporaryFile() as output:
        child = Child(MODULE, arguments, Path(output.name))
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


def _check() -> NoReturn:
    """
    The separate process, whose reason to leave is the start card. Its arguments are the run as TOML, the device,
    imports, --hook, hooks.
    """
    settings, device, *named = sys.argv[1:]
    imports, hooks = named[: named.index("--hook")], named[named.index("--hook") + 1 :]
    run = run_from_dict(tomllib.loads(settings), source="rl-cluster")
    check_device(device)
    for path in hooks:
        with tried(f"--hook {path}"):
            Hooks([path])
    card = check_run(run, imports=imports)
    report_reason("over", "\n".join(card))
    os._exit(0)  # taking torch down is 0.2 s, for which a start would wait


if __name__ == "__main__":
    start(MODULE, "_check")
