"""
Which modules a program imports because a run's environment asks for them: those that its own command line names.

The environment of a run is what some worker proposed. To import its module is to run code, so a peer's word is not
enough: only a server that is known by its key is believed.
"""

from collections.abc import Sequence

from common.errors import SettingsError
from common.run_spec import Environment
from rl_worker.environment_ids import import_named


def import_modules(named: Sequence[str], environment: Environment, *, source: str, is_trusted: bool) -> None:
    """
    Import what the command line names, and see to it that `environment`, which `source` says, needs nothing else.

    Raises SettingsError.
    """
    for module in named:
        import_named(module, flag=f"--import {module}")
    module = environment.module
    if not module or is_trusted or any(_is_within(module, name) for name in named):
        return
    raise SettingsError(
        f"{source} trains {environment.id}, and the module {module} is not imported on the word of a server that is "
        f"not known by a key; if you know what is in it, add --import {module}"
    )


def _is_within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")
