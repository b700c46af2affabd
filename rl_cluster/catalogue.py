"""
`rl-cluster --list`: presets and environments by family, with what to install for a missing family.

Registered ids are listed; no environment is made. A preset is of the family of its environment.
"""

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import gymnasium
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ps_common.settings.run_files import load_preset, presets, what_preset_is
from rl_agent.environments.ids import register_family


@dataclass(frozen=True)
class Family:
    """Environments that are registered together."""

    title: str
    beginning: str  # of an id, as `register_family` knows it
    package: str  # that implements them
    remedy: str  # what to install where the package is missing
    belongs: Callable[[str, str], bool]  # (id, entry point) -> whether it is of this family


FAMILIES = (
    Family("classic control", "", "gymnasium", "", lambda _, place: place.startswith("gymnasium.envs.classic")),
    Family("toy text", "", "gymnasium", "", lambda _, place: place.startswith("gymnasium.envs.toy_text")),
    Family("Box2D", "", "Box2D", "the extra box2d", lambda _, place: place.startswith("gymnasium.envs.box2d")),
    Family("MuJoCo", "", "mujoco", "the extra mujoco", lambda _, place: place.startswith("gymnasium.envs.mujoco")),
    Family("MinAtar", "MinAtar/", "minatar", "the extra minatar", lambda name, _: name.startswith("MinAtar/")),
    Family("Atari", "ALE/", "ale_py", "", lambda name, _: name.startswith("ALE/")),
    Family(
        "ViZDoom's scenarios",
        "Vizdoom",
        "vizdoom",
        "the extra doom",
        lambda name, _: bool(re.fullmatch(r"Vizdoom[A-Za-z]+-v1", name)) and not re.search("Audio|Notific", name),
    ),
)


def print_catalogue() -> None:
    """Presets and environments, on standard output."""
    console = Console(highlight=False)
    by_family = {preset: family_of(load_preset(preset).environment.id) for preset in presets()}
    table = Table("--preset", "what it is", box=SIMPLE_HEAD, pad_edge=False)
    for family in FAMILIES:
        table.add_row(Text(family.title, style="bold"))
        for preset in (preset for preset in by_family if by_family[preset] is family):
            table.add_row(preset, what_preset_is(preset))
        table.add_section()
    console.print(table)
    for family in FAMILIES:
        ids = _ids(family)
        missing = "" if find_spec(family.package) else f" (not installed here: takes {family.remedy})"
        console.print(Text("--environment, ").append(family.title, style="bold").append(missing))
        if ids:
            console.print(Columns(ids, padding=(0, 2)))
        console.print()
    console.print("Any other id that Gymnasium knows, and custom ones as module:Name-v0, can be trained too.")


def family_of(environment: str) -> Family:
    """The family of a preset's environment, also where the package that registers it is missing."""
    spec = gymnasium.registry.get(environment)
    place = str(spec.entry_point) if spec else ""
    return next(family for family in FAMILIES if family.belongs(environment, place))


def _ids(family: Family) -> list[str]:
    """The newest version of each environment, sorted; none where the missing package registers them."""
    with contextlib.suppress(ImportError):
        register_family(family.beginning)
    newest: dict[str, str] = {}
    for name, spec in sorted(gymnasium.registry.items(), key=lambda item: item[1].version or 0):
        if family.belongs(name, str(spec.entry_point)):
            newest[name.rpartition("-v")[0]] = name
    return sorted(newest.values())
