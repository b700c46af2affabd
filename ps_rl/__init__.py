"""
The Python interface of ps-rl.

    from ps_rl import train, Run, load_policy, ParameterServerClient

`train` starts a server and workers on this machine and returns a `Run`; `Run.open` reads a run folder; `load_policy`
makes a trained policy a Python object; `ParameterServerClient` is a worker for anything that has parameters. Errors are
`PsRlError`s. A name is imported when it is used: `import ps_rl` loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps_client.client import ParameterServerClient as ParameterServerClient
    from ps_common.errors import PsRlError as PsRlError
    from ps_common.errors import RunEnded as RunEnded
    from ps_common.errors import SettingsError as SettingsError
    from ps_rl.run import Run as Run
    from ps_rl.training import train as train
    from ps_rl.updates import Update as Update
    from rl_eval.policy import load_policy as load_policy

    __version__: str

PLACES = {
    "ParameterServerClient": "ps_client.client",
    "PsRlError": "ps_common.errors",
    "RunEnded": "ps_common.errors",
    "Run": "ps_rl.run",
    "SettingsError": "ps_common.errors",
    "Update": "ps_rl.updates",
    "load_policy": "rl_eval.policy",
    "train": "ps_rl.training",
}
__all__ = [*PLACES]

if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name == "__version__":
            from importlib.metadata import version

            return version("ps-rl")
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES, "__version__"})
