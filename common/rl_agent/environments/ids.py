"""
Which registered environment an id names, which module registers the id, and which extra installs a missing package.

Whether a module may be imported at all is decided by imports.py.
"""

import importlib
import re

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.families import FAMILIES, family_of
from ps_common.settings.run_spec import Environment
from rl_agent.environments.imports import import_named, shadowed_module

# The extra of ps-rl that installs an environment, by a prefix of the environment's id or of its module.
EXTRAS = {
    **{family.prefix: family.extra for family in FAMILIES.values() if family.extra},
    "MinAtar/": "minatar",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.box2d": "box2d",
}
OLD_ATARI = re.compile(r"(?:ALE/)?(\w+?)(?:-ram)?(?:NoFrameskip|Deterministic)?(?:-v\d+)?")
CUSTOM = "a custom environment is MODULE:NAME, where NAME is the function or class that makes it"


def spec_of(environment: str) -> EnvSpec:
    """
    The registered specification of an id; the module of a "module:id" is imported first, as in Gymnasium.

    Raises SettingsError with Gymnasium's suggestion, the extra to install, or the reason why the import failed.
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
        why = (shadowed_module(module) if module else "") or str(error).rstrip(". ")
        hint = _of_ale(name) or (f"; {CUSTOM}" if re.fullmatch(r"[\w.]+", environment) else "")
        raise SettingsError(f"--environment {environment}: {why}{hint}") from error


def _of_ale(name: str) -> str:
    """A hint if this is an id of an Atari game in an older form, as PongNoFrameskip-v4; otherwise ""."""
    game = OLD_ATARI.fullmatch(name)
    register_family("ALE/")
    now = f"ALE/{game[1]}-v5" if game else ""
    return (
        f"; this Atari game is {now} now, with --frame-skip and --sticky-actions" if now in gymnasium.registry else ""
    )


def not_installed(environment: str, origin: str, error: Exception) -> SettingsError:
    """The error for an environment whose package is missing; `origin` is an id or a module, as in EXTRAS."""
    extra = next((extra for prefix, extra in EXTRAS.items() if origin.startswith(prefix)), None)
    remedy = f"; in a checkout of ps-rl: pip install -c constraints.txt '.[{extra}]'" if extra else ""
    return SettingsError(f"--environment {environment}: {error}{remedy}")


def action_table(settings: Environment, count: int) -> NDArray[np.int64]:
    """The environment's number of each action of the policy; the environment has `count` actions."""
    if too_large := [action for action in settings.actions if action >= count]:
        raise SettingsError(f"--actions {too_large[0]}: {settings.id} has actions 0 to {count - 1}")
    return np.array(settings.actions or range(count), dtype=np.int64)


def register_family(name: str) -> None:
    """Import the package that registers the ids of this family, where Gymnasium does not do it itself."""
    family = FAMILIES.get(family_of(name))
    if family is not None and family.registers:
        importlib.import_module(family.registers)
    elif name.startswith("MinAtar/") and name not in gymnasium.registry:
        from minatar.gym import register_envs

        register_envs()
