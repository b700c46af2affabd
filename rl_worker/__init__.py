"""
The worker: steps environments, computes gradients, sends them to the server. And the Python interface of ps-rl.

    from ps_rl import train, Run, load_policy, ParameterServerClient

`train` starts a server and workers on this machine and returns a `Run`; `Run.open` reads a run folder; `load_policy`
makes a trained policy a Python object; `ParameterServerClient` is a worker for anything that has parameters. Errors are
`PsRlError`s. The names are imported when they are used: `import ps_rl` loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps_client.client import ParameterServerClient as ParameterServerClient
    from ps_common.errors import PsRlError as PsRlError
    from ps_common.errors import RunEnded as RunEnded
    from ps_common.errors import SettingsError as SettingsError
    from ps_rl.run import Run as Run
    from ps_rl.training import train as train
    from rl_eval.export.policy import load_policy as load_policy

PLACES = {
    "ParameterServerClient": "ps_client.client",
    "PsRlError": "ps_common.errors",
    "RunEnded": "ps_common.errors",
    "Run": "ps_rl.run",
    "SettingsError": "ps_common.errors",
    "load_policy": "rl_eval.export.policy",
    "train": "ps_rl.training",
}
__all__ = [*PLACES]

if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        _check_own_common()
        return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES})


def _check_own_common() -> None:
    """Raises ImportError when `common` is another package than that of ps-rl."""
    import os

    import common

    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    theirs = str(getattr(common, "__file__", None) or next(iter(common.__path__), ""))
    if not os.path.abspath(theirs).startswith(os.path.join(ours, "common")):
        raise ImportError(f"ps-rl has a package named common, and {theirs} was imported in its place; rename that one")
