"""
A custom algorithm, `--algorithm my_pkg:MyMethod`: what it must be, how its settings are read, how it is built.

The settings of the run are names and values; the algorithm's own struct has their types, bounds, defaults and help
texts. Two names mean to the server what they mean to the methods of ps-rl: `unroll_length`, which every algorithm has,
and `target_interval`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
from msgspec import NODEFAULT

from ps_common.errors import SettingsError
from ps_common.settings.custom_algorithm import KNOWN_TO_THE_SERVER
from ps_common.settings.run_settings import flag_of, is_gone, problem_and_place
from ps_common.settings.run_spec import CustomAlgorithmSettings, RunSpec
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.imports import custom_part
from rl_agent.environments.spaces import Spaces
from rl_agent.networks.custom_network import check_travels

NEEDED = (
    "an algorithm has `settings`, a msgspec.Struct with an unroll_length, and a class method build(settings, run, "
    "spaces, *, device, seed)"
)
# Of rl_agent.algorithms.algorithm.Algorithm: the members that an algorithm must have, and what others are without it.
MEMBERS = ("network", "unroll_length", "discount", "act", "predict", "batches", "loss")
DEFAULTS: dict[str, Any] = {
    "blocks": (),
    "target_network": None,
    "commits_next_action": False,
    "learns_with_newest": False,
    "learns_while_acting": False,
    "gradient_clip": 0.0,
    "begin_unroll": lambda _: None,
    "loaded": lambda _: None,
    "initial_state": lambda _: (),
}


def custom_settings(path: str, given: Mapping[str, Any], without_it: Sequence[msgspec.Struct] = ()) -> msgspec.Struct:
    """
    The settings of the algorithm at an import path, of which some are given. Raises SettingsError.

    `without_it` are settings of our methods in the same run. An algorithm whose settings are a subclass of theirs
    starts from their values, but for other defaults.
    """
    flag = f"--algorithm {path}"
    kind = getattr(_part(path), "settings", None)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and "unroll_length" in kind.__struct_fields__):
        raise SettingsError(f"{flag}: {_what(kind)}; {NEEDED}")
    gone = [name for name in given if name not in kind.__struct_fields__ and is_gone(f"algorithm.{name}", given[name])]
    given = {name: value for name, value in given.items() if name not in gone}
    if unknown := [name for name in given if name not in kind.__struct_fields__]:
        there_are = ", ".join(kind.__struct_fields__)
        raise SettingsError(f"{flag}: has no setting {unknown[0]} ({flag_of(f'algorithm.{unknown[0]}')}); {there_are}")
    tagged = _inherited(kind, without_it) | dict(given)
    if (tag_field := kind.__struct_config__.tag_field) is not None:
        tagged[tag_field] = kind.__struct_config__.tag
    try:
        made: msgspec.Struct = msgspec.convert(tagged, kind)
    except msgspec.ValidationError as error:
        problem, place = problem_and_place(error)
        where = f" for algorithm{place}" if place else ""
        raise SettingsError(f"{flag}: {problem[:1].lower()}{problem[1:]}{where}") from error
    return made


def _inherited(kind: type[msgspec.Struct], without_it: Sequence[msgspec.Struct]) -> dict[str, Any]:
    """The values of the first of these settings that this kind is derived from, where it has the same default."""
    base = next((one for one in without_it if issubclass(kind, type(one))), None)
    if base is None:
        return {}
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(base))}
    same = {
        field.name for field in msgspec.structs.fields(kind) if defaults.get(field.name, NODEFAULT) == field.default
    }
    return {name: value for name, value in msgspec.to_builtins(base).items() if name in same}


def build_custom(run: RunSpec, path: str, spaces: Spaces, *, device: torch.device, seed: int) -> Algorithm:
    """The run's custom algorithm, which is at this import path. Raises SettingsError that names what is missing."""
    flag, part = f"--algorithm {path}", _part(path)
    if not callable(getattr(part, "build", None)):
        raise SettingsError(f"{flag}: has no build; {NEEDED}")
    built = part.build(settings_in(run, path), run, spaces, device=device, seed=seed)
    if missing := [name for name in MEMBERS if not hasattr(built, name)]:
        raise SettingsError(
            f"{flag}: {type(built).__name__} has no {', '.join(missing)}; it needs the members of "
            "rl_agent.algorithms.algorithm.Algorithm"
        )
    for name, default in DEFAULTS.items():
        if not hasattr(built, name):
            setattr(built, name, default)
    check_travels(built.network, flag=flag)
    algorithm: Algorithm = built
    return algorithm


def adjust_custom(algorithm: Algorithm, settings: CustomAlgorithmSettings) -> None:
    """
    Give a custom algorithm the settings of its run, which were adjusted. Raises SettingsError, with the algorithm as it
    was, where it has no `adjust`, or its settings do not allow these values.
    """
    given = msgspec.to_builtins(settings)
    path = given.pop("name")
    if not hasattr(algorithm, "adjust"):
        raise SettingsError(f"--algorithm {path}: has no `adjust`")
    algorithm.adjust(custom_settings(path, given))


def settings_in(run: RunSpec, path: str) -> msgspec.Struct:
    """
    The settings of the run's custom algorithm, which is at this import path. Raises SettingsError.

    Settings that the server acts on have to be in the run: it knows no default of a class that it does not import.
    """
    given = {name: value for name, value in run.to_dict()["algorithm"].items() if name != "name"}
    settings = custom_settings(path, given)
    for name in KNOWN_TO_THE_SERVER:
        if name in settings.__struct_fields__ and name not in given:
            value = getattr(settings, name)
            raise SettingsError(
                f"--algorithm {path}: the run does not say its {name}, which the server acts on: begin it with "
                f"rl-cluster, or add {name} = {value} to [algorithm] in the file of ps-server --config"
            )
    return settings


def _part(path: str) -> Any:
    return custom_part(path, flag="--algorithm", kind=NEEDED)


def _what(kind: Any) -> str:
    if kind is None:
        return "has no settings"
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return "its settings have no unroll_length" if is_struct else "its settings are no msgspec.Struct"
