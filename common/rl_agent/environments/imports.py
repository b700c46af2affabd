"""
Which modules a program imports for a run, how a custom part is found in one, and its errors as one sentence.

The parts of a run (environment, wrappers, network, algorithm) were proposed by some worker, or read from a file of
unknown origin. Importing a module runs its code, so a peer or a file cannot cause an import; its own command line can,
and a server that is authenticated by its key. Users' modules are found among the installed packages and in the working
folder. The Python objects that a program hands to its child processes need no import. Nothing here loads Gymnasium.
"""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.objects import MAIN, check_is_here, missing, objects_here
from ps_common.program.reasons import reason_of
from ps_common.program.start import find_in_working_folder, working_folder
from ps_common.protocol.names import module_of
from ps_common.settings.run_spec import Environment, RunSpec

COLOUR = re.compile("\x1b\\[[0-9;]*m")


def check_modules(
    named: Sequence[str], trained: RunSpec | Environment, *, source: str, is_trusted: bool = False
) -> None:
    """Raises SettingsError if `trained`, given by `source`, needs a module that the command line did not name."""
    for part in trained.parts:
        if check_is_here(part):
            continue
        if (module := module_of(part)) not in named and not is_trusted:
            raise SettingsError(
                f"{source} trains {part}, and a module is imported only when the command line names it, or a "
                f"server that is known by its key; if you trust the code of {module}, add --import {module}"
            )


def import_modules(
    named: Sequence[str], trained: RunSpec | Environment, *, source: str, is_trusted: bool = False
) -> None:
    """Import the modules of the command line, after a check that `trained` needs no other. Raises SettingsError."""
    check_modules(named, trained, source=source, is_trusted=is_trusted)
    for module in named:
        import_named(module, flag=f"--import {module}")


def import_named(module: str, *, flag: str) -> Any:
    """Import a module that the user named with this flag. Raises SettingsError."""
    if module.startswith(".") or "/" in module:
        raise SettingsError(
            f"{flag}: {module} is not a module name; give one that `import` takes, such as my_pkg.games"
        )
    if module == MAIN and not objects_here():
        raise missing(flag)
    if module == MAIN:
        return SimpleNamespace(**objects_here(), __name__=MAIN)
    find_in_working_folder()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        why = shadowed_module(module) or error
        raise SettingsError(f"{flag}: {module} cannot be imported here: {why}") from error


def custom_part(path: str, *, flag: str, kind: str) -> Any:
    """
    The object at the import path that `flag` gives; `kind` says what it should be, for errors. Raises SettingsError.

    Whether its module may be imported was checked before.
    """
    module, _, names = path.rpartition(":")
    found: Any = import_named(module, flag=f"{flag} {path}")
    for name in names.split("."):
        if not hasattr(found, name):
            why = shadowed_module(module) or f"{getattr(found, '__name__', module)} has no {name}"
            raise SettingsError(f"{flag} {path}: {why}; {kind}")
        found = getattr(found, name)
    if not callable(found):
        raise SettingsError(f"{flag} {path}: is {type(found).__name__}, and cannot be called; {kind}")
    return found


@contextmanager
def taking(arguments: Mapping[str, Any], *, flag: str) -> Iterator[None]:
    """A part is made with these keyword arguments, of this flag. Raises SettingsError that names an unknown one."""
    try:
        yield
    except TypeError as error:
        if unknown := [name for name in arguments if f"unexpected keyword argument '{name}'" in str(error)]:
            why = str(error).partition(" was raised from")[0]  # Gymnasium adds all arguments
            raise SettingsError(f"{flag}: there is no argument {unknown[0]}: {why}; remove it") from error
        raise


@contextmanager
def tried(flag: str, *, hint: str = "") -> Iterator[None]:
    """
    Any error of the block becomes a SettingsError that names the flag and gives the hint; those of ps-rl stay as they
    are. Warnings of a block that passes are given once it is over.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        except PsRlError:
            raise
        except (Exception, SystemExit) as error:
            why = reason_of(error)
            if isinstance(error, TypeError) and "required positional argument" in str(error):
                hint = hint or "name a function of yours, MODULE:NAME, that fills in its other arguments"
            hints = [*filter(None, [hint]), *gymnasium_warnings(warned)[-1:]]  # which often say the cause
            raise SettingsError("; ".join([f"{flag}: fails when it is tried: {why}", *hints])) from error
    for one in warned:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def gymnasium_warnings(warned: Sequence[warnings.WarningMessage]) -> list[str]:
    """Each text of Gymnasium's own warnings among these, once."""
    texts = [" ".join(COLOUR.sub("", str(one.message)).split()) for one in warned]
    return list(dict.fromkeys(text.removeprefix("WARN: ") for text in texts if text.startswith("WARN: ")))


def shadowed_module(module: str) -> str:
    """A sentence if another module of the same name was imported in place of the working folder's; otherwise ""."""
    first = module.partition(".")[0]
    here = os.path.join(working_folder(), first)
    imported = sys.modules.get(first)
    file = str(getattr(imported, "__file__", None))
    if imported is None or not (os.path.isdir(here) or os.path.isfile(here + ".py")) or file.startswith(here):
        return ""
    return f"{first} is {file}, not the module in this folder; rename yours"
