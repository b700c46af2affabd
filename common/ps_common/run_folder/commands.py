"""The commands of a run: the one that began it, which its folder keeps, and those that a user may type next."""

import contextlib
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ps_common.protocol.lineage import WHOLE
from ps_common.protocol.status import Status
from ps_common.run_folder.paths import COMMAND, GAME_GIF
from ps_common.settings.hidden import hidden_command
from ps_common.settings.regular_file import content_of

LONGEST_COMMAND = 2**14  # bytes; shlex takes time with the square of a word


def keep_command(run_folder: Path, program: str) -> None:
    """Keep the command of this process as the one that began the run, unless the folder has another."""
    command = shlex.join([program, *sys.argv[1:]]) + "\n"
    with contextlib.suppress(OSError), (run_folder / COMMAND).open("xb") as file:
        file.write(os.fsencode(command))


def command_of_run(run_folder: Path) -> str:
    """The command that began the run, without secrets; "" where that is unknown."""
    with contextlib.suppress(OSError, ValueError):
        command = content_of(run_folder / COMMAND, most_bytes=LONGEST_COMMAND).decode(errors="replace").strip()
        return hidden_command(command)
    return ""


def what_next(status: Status, folder: Path, *, modules: Sequence[str]) -> list[str]:
    """Commands, each under a comment that describes it. `modules` are those that the environment needs."""
    run = shlex.quote(str(folder))
    run_in_games = " ".join([run, "--import", *map(shlex.quote, modules)]) if modules else run
    lines = []
    if status.checkpoint_version:
        play = f"{_command('rl-eval')} --checkpoint {run_in_games}"
        lines += [f"# full games with its {'best' if status.shard == WHOLE else 'newest'} weights, scored:", play]
        lines += ["# see it play:", f"{play} --episodes 1 --gif {shlex.quote(str(folder / GAME_GIF))}"]
        further = "" if status.minutes_to_target is None else " beyond its score"
        resume = " ".join([f"{_command('rl-cluster')} --resume {run_in_games}", *_raised_limits(status)])
        lines += [f"# resume it{further}:", resume] if status.shard == WHOLE else []
    if status.episodes:
        lines += ["# its curve, and those of other runs:", f"{_command('ps-ctl')} plot {run} OTHER_RUN_DIR"]
    return lines


def whose_code(modules: Sequence[str]) -> list[str]:
    """A line on modules that the commands below import; the folder that names them may be a stranger's."""
    names = ", ".join(modules)
    return [f"# these run code that the run's folder names: {names}; only where you trust it"] if modules else []


def _raised_limits(status: Status) -> list[str]:
    """Flags that lift the limits that the run has reached; otherwise the resumed run would end at once."""
    flags = [] if status.minutes_to_target is None else ["--until-return None"]
    if status.max_steps and status.global_steps >= status.max_steps:
        flags.append(f"--max-steps {2 * status.global_steps}")
    if status.max_episodes and status.episodes >= status.max_episodes:
        flags.append(f"--max-episodes {2 * status.episodes}")
    if status.max_minutes and status.minutes >= status.max_minutes:
        flags.append(f"--max-minutes {math.ceil(2 * status.minutes)}")
    return flags


def _command(program: str) -> str:
    """The program's name; its path beside this one when it is not on the search path."""
    beside = Path(sys.argv[0]).with_name(program)
    return shlex.quote(str(beside)) if shutil.which(program) is None and beside.exists() else program
