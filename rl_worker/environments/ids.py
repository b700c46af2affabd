"""
Which registered environment an id names: what is imported first, and which extra brings a package that is missing.

Whether a module may be imported at all is decided where the run comes from (imports.py).
"""

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings.run_spec import Environment
from rl_worker.environments.imports import hidden_by_another, import_named

# Who plays these installs an extra of ps-rl; by the beginning of the id, or of the module an id is registered with.
EXTRAS = {"Vizdoom": "doom", "MinAtar/": "minatar", "gymnasium.envs.mujoco": "mujoco"}


def spec_of(environment: str) -> EnvSpec:
    """
    The registered specification of an id; a "module:" before it is imported first, as Gymnasium does.

    Raises SettingsError with what Gymnasium suggests, the extra to install, or what is wrong with the module.
    """
    module, _, name = environment.rpartition(":")
    if module:
        import_named(module, flag=f"--environment {environment}")
    try:
        register_family(name)
    except ImportError as error:
        raise not_installed(environment, name, error) from error
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        hidden = hidden_by_another(module) if module else ""
        raise SettingsError(f"--environment {environment}: {hidden or error}") from error


def not_installed(environment: str, place: str, error: Exception) -> SettingsError:
    """The sentence for an environment whose package is missing; `place` is where EXTRAS is looked up."""
    extra = next((extra for beginning, extra in EXTRAS.items() if place.startswith(beginning)), None)
    remedy = f"; in a checkout of ps-rl: pip install -c constraints.txt '.[{extra}]'" if extra else ""
    return SettingsError(f"--environment {environment}: {error}{remedy}")


def action_table(settings: Environment, count: int) -> NDArray[np.int64]:
    """Which of an environment's `count` actions each action of the policy is."""
    if too_large := [action for action in settings.actions if action >= count]:
        raise SettingsError(f"--actions {too_large[0]}: {settings.id} has actions 0 to {count - 1}")
    return np.array(settings.actions or range(count), dtype=np.int64)


def register_family(name: str) -> None:
    """Packages that Gymnasium does not register by itself."""
    if name.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
    elif name.startswith("Vizdoom"):
        import vizdoom.gymnasium_wrapper  # noqa: F401  (registers its ids when imported)
    elif name.startswith("MinAtar/") and name not in gymnasium.registry:
        from minatar.gym import register_envs

        register_envs()
