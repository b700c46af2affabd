"""
The process that calls `on_checkpoint`: it looks for new checkpoints in a run's folder until it is asked to leave.

The files are the queue: a slow hook slows neither server nor workers down, and a hook that crashes ends this process
alone.
"""

import logging
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.output import log_as
from ps_common.program.reasons import say
from ps_common.program.stop_signals import StopSignal
from ps_common.run_folder.checkpoint_folder import newer_than, newest_first
from ps_common.run_folder.paths import CHECKPOINTS, write_whole
from rl_agent.trial.hooks import Hooks
from rl_cluster.followers import Follower

PROGRAM = "hooks"
LOG = "hooks.log"
HANDED = "hooks.handed"  # file with the name of the newest checkpoint that hooks were called with, or need not see
LOOK_SECONDS = 0.5

log = logging.getLogger(PROGRAM)


def follow(argv: list[str] | None = None) -> int:
    """
    RUN_DIR MODULE:NAME …: call hooks for each checkpoint that is there, and for each new one. With --after FILE before
    the hooks: only for those that are newer than the one that FILE names, and FILE is kept. Raises SettingsError.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    stop = StopSignal()
    log_as(PROGRAM)
    handed = Path(arguments[2]) if arguments[1:2] == ["--after"] else None
    paths = arguments[1 if handed is None else 3 :]
    if not paths:
        raise SettingsError("usage: python -m rl_cluster.hooks RUN_DIR MODULE:NAME ...")
    folder = Path(arguments[0]) / CHECKPOINTS
    after = "" if handed is None else handed.read_text(encoding="utf-8")
    seen = {path for path in newest_first(folder) if path not in newer_than(folder / after)} if after else set()
    hooks = Hooks(paths)
    if not hooks.has_checkpoints:
        say("over", "")
        return 0
    while True:
        is_last = stop.is_set()
        for path in reversed(newest_first(folder)):
            if path not in seen:
                seen.add(path)
                if handed is not None:  # before the call: a checkpoint that ends this process does so once
                    write_whole(handed, path.name)
                hooks.checkpoint_appeared(path)
        if is_last:
            return 0
        time.sleep(LOOK_SECONDS)


def checkpoint_hooks(run_folder: Path, paths: Sequence[str]) -> list[Follower]:
    """
    The process, if any, that calls these hooks for the checkpoints that appear in this folder from now on. Started
    again, it goes on where it ended. Raises SettingsError.
    """
    if not paths:
        return []
    handed, newest = run_folder / HANDED, newest_first(run_folder / CHECKPOINTS)[:1]
    try:
        write_whole(handed, "".join(path.name for path in newest))
    except OSError as error:
        raise SettingsError(f"{handed}: cannot be written: {error.strerror}") from error
    arguments = [str(run_folder), "--after", str(handed), *paths]
    return [Follower("hooks", partial(Child, "rl_cluster.hooks", arguments, run_folder / LOG))]
