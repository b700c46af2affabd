"""
The places that a program imports from: its own packages first, then installed ones, the working folder last.

A `torch.py` or a `random.py` in the working folder must not break a program. A `__main__.py` imports this file alone,
and this file imports others of ours when the places are in order.
"""

import gc
import importlib
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

NO_RUN = frozenset({"-h", "--help", "--list"})  # flags with which a program starts no other


def start(
    module: str, function: str, *, leaves_in_order: bool = False, forks: Mapping[str, Sequence[str]] | None = None
) -> NoReturn:
    """
    Run a function of one of our modules, which has the name of its PROGRAM.

    The garbage collector is off until `run_program`: imports take a fifth less time. A program that `leaves_in_order`
    does so while it imports, too. `forks`: programs that it starts, and the modules that they import.
    """
    gc.disable()
    working_folder_last()
    from ps_common.program.reasons import answer_to_parent

    answer_to_parent()
    _forget_the_screen()
    if forks and not NO_RUN.intersection(sys.argv):
        from ps_common.program.fork_server import begin_fork_server

        begin_fork_server(forks, here=working_folder())
    if leaves_in_order:
        from ps_common.program.stop_signals import leave_at_once

        leave_at_once()
    from ps_common.program.run_program import INTERRUPTED, ProgramEnd, end_in_time, run_program

    try:
        program = importlib.import_module(module)
    except KeyboardInterrupt:  # the program has done nothing yet
        raise SystemExit(INTERRUPTED) from None
    try:
        run_program(getattr(program, function), program.PROGRAM)
    except ProgramEnd as end:
        end_in_time(end)
        raise


def _forget_the_screen() -> None:
    """A notebook's backend of matplotlib is not for programs, and SDL, which draws games, warns of a missing folder."""
    import tempfile  # which imports random, and the working folder may have another

    os.environ.pop("MPLBACKEND", None)
    with suppress(FileNotFoundError):  # no folder for temporary files can be written
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())


def working_folder() -> str:
    """The folder that the program was started in; "" if it was removed since."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def working_folder_last() -> None:
    """Move the working folder, if it is on the path (`python -m` puts it first), to the end."""
    here = working_folder()
    elsewhere = [place for place in sys.path if os.path.realpath(place) != here] if here else sys.path
    if len(elsewhere) < len(sys.path):
        sys.path[:] = [*elsewhere, here]


def places_beside_installed() -> list[str]:
    """
    The places that this process imports from, without Python's own, installed packages and the working folder.

    Among them is the folder of a script, and what a program has added to sys.path.
    """
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    here = working_folder()
    return [
        place
        for place in sys.path
        if os.path.exists(place) and not place.startswith(installed) and os.path.realpath(place) != here
    ]


def find_in_working_folder() -> None:
    """From now on modules are found in the working folder too, after all other places."""
    working_folder_last()
    here = working_folder()
    if here and here not in sys.path:
        sys.path.append(here)
