"""
From where a program imports: its own packages first, then installed ones, the working folder last.

Whoever has a `common`, a `torch.py` or a `random.py` in the working folder must not break a program by it. The two
`__main__.py` make sure that this file is the one beside them; it must not import others of ours before it has run.
"""

import gc
import importlib
import os
import sys
from typing import NoReturn


def start(module: str) -> NoReturn:
    """
    Run `main` of one of our modules.

    Nothing is looked for in garbage while modules are imported, which takes a fifth less time: run_program begins to.
    """
    gc.disable()
    working_folder_last()
    importlib.import_module(module).main()
    raise AssertionError("main of a program does not return")


def working_folder() -> str:
    """Where the program was started; "" when that folder has been removed since."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def working_folder_last() -> None:
    """Wherever the working folder is on the path (`python -m` puts it first), it is the last place from now on."""
    here = working_folder()
    elsewhere = [place for place in sys.path if os.path.realpath(place) != here] if here else sys.path
    if len(elsewhere) < len(sys.path):
        sys.path[:] = [*elsewhere, here]


def find_in_working_folder() -> None:
    """From now on modules are found in the working folder too, when nobody else has one of that name."""
    working_folder_last()
    here = working_folder()
    if here and here not in sys.path:
        sys.path.append(here)
