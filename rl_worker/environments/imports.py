"""
Which modules programs import because a run's environment asks for them: those that the own command line names.

The environment of a run is what some worker proposed, or what a file says that may come from anywhere. To import its
module is to run code, so the word of a peer or of a file is not enough: only a server that is known by its key is
believed. Modules of users' own are found among what is installed and in the working folder. Nothing here loads
Gymnasium.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from common.errors import SettingsError
from common.program.start import find_in_working_folder, working_folder
from common.settings.run_spec import Environment


def check_module(named: Sequence[str], environment: Environment, *, source: str, is_trusted: bool = False) -> None:
    """Raises SettingsError when `environment`, which `source` says, needs a module that the command line names not."""
    module = environment.module
    if module and module not in named and not is_trusted:
        raise SettingsError(
            f"{source} trains {environment.id}, and a module is imported only when the command line names it, or a "
            f"server that is known by its key; if you know what is in {module}, add --import {module}"
        )


def import_modules(named: Sequence[str], environment: Environment, *, source: str, is_trusted: bool) -> None:
    """Import what the command line names, once `environment` needs nothing else. Raises SettingsError."""
    check_module(named, environment, source=source, is_trusted=is_trusted)
    for module in named:
        import_named(module, flag=f"--import {module}")


def import_named(module: str, *, flag: str) -> None:
    """Import a module that the user named with this flag. Raises SettingsError."""
    if module.startswith("."):
        raise SettingsError(f"{flag}: {module} is no name of a module")
    find_in_working_folder()
    try:
        importlib.import_module(module)
    except ImportError as error:
        why = hidden_by_another(module) or error
        raise SettingsError(f"{flag}: {module} cannot be imported here: {why}") from error


def hidden_by_another(module: str) -> str:
    """A sentence, when the working folder has a module of this name and another one was imported; else ""."""
    first = module.partition(".")[0]
    here = os.path.join(working_folder(), first)
    imported = sys.modules.get(first)
    file = str(getattr(imported, "__file__", None))
    if imported is None or not (os.path.isdir(here) or os.path.isfile(here + ".py")) or file.startswith(here):
        return ""
    return f"{first} is {file}, not the one in this folder; give yours another name"
