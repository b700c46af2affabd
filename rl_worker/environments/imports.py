"""
Which modules a program imports for a run's environment: those that its own command line names.

The environment of a run was proposed by some worker, or read from a file of unknown origin. Importing a module runs its
code, so a peer or a file cannot cause an import; a server that is authenticated by its key can. Users' modules are
found among the installed packages and in the working folder. Nothing here loads Gymnasium.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from common.errors import SettingsError
from common.program.start import find_in_working_folder, working_folder
from common.settings.run_spec import Environment


def check_module(named: Sequence[str], environment: Environment, *, source: str, is_trusted: bool = False) -> None:
    """Raises SettingsError if `environment`, given by `source`, needs a module that the command line did not name."""
    module = environment.module
    if module and module not in named and not is_trusted:
        raise SettingsError(
            f"{source} trains {environment.id}, and a module is imported only when the command line names it, or a "
            f"server that is known by its key; if you trust the code of {module}, add --import {module}"
        )


def import_modules(named: Sequence[str], environment: Environment, *, source: str, is_trusted: bool) -> None:
    """Import the modules of the command line, after a check that `environment` needs no other. Raises SettingsError."""
    check_module(named, environment, source=source, is_trusted=is_trusted)
    for module in named:
        import_named(module, flag=f"--import {module}")


def import_named(module: str, *, flag: str) -> None:
    """Import a module that the user named with this flag. Raises SettingsError."""
    if module.startswith("."):
        raise SettingsError(f"{flag}: {module} is not a module name; give an absolute one")
    find_in_working_folder()
    try:
        importlib.import_module(module)
    except ImportError as error:
        why = shadowed_module(module) or error
        raise SettingsError(f"{flag}: {module} cannot be imported here: {why}") from error


def shadowed_module(module: str) -> str:
    """A sentence if another module of the same name was imported in place of the working folder's; otherwise ""."""
    first = module.partition(".")[0]
    here = os.path.join(working_folder(), first)
    imported = sys.modules.get(first)
    file = str(getattr(imported, "__file__", None))
    if imported is None or not (os.path.isdir(here) or os.path.isfile(here + ".py")) or file.startswith(here):
        return ""
    return f"{first} is {file}, not the module in this folder; rename yours"
