"""
Which settings of a run a resume may change, and the sentence for those that it may not.

A change is applied from the resume on, and recorded. Refused is what the run's weights, the optimizer's memory and the
scores so far were made with: with another value they would mean something else, or fit nothing.
"""

from collections.abc import Mapping
from typing import Any

from common.errors import SettingsError
from common.settings.run_spec import RunSpec, flag_of, flat_settings, with_settings

KEPT_SECTIONS = {"environment", "network"}
KEPT = {"preset", "seed", "algorithm.name", "optimizer.name"}
CHANGEABLE = {"environment.envs"}  # of the sections above


def resumed_run(kept: RunSpec, overrides: Mapping[str, Any]) -> RunSpec:
    """The run with what the user wants otherwise, given flat. Raises SettingsError that names the first such flag."""
    settings = flat_settings(kept.to_dict())
    for key, wish in overrides.items():
        flag = f"{flag_of(key)} {_typed(wish)}"
        if key not in settings:
            raise SettingsError(f"{flag}: is not a setting of the resumed run ({kept.preset}); leave it out")
        if _is_kept(key) and _as_list(settings[key]) != _as_list(wish):
            why = f"a resumed run keeps {_typed(settings[key])}, with which it was begun"
            raise SettingsError(f"{flag}: {why}; leave the flag out, or begin a new run")
    return with_settings(kept, overrides, source="flags")


def _is_kept(key: str) -> bool:
    return key in KEPT or (key.partition(".")[0] in KEPT_SECTIONS and key not in CHANGEABLE)


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(value: Any) -> str:
    """As on a command line."""
    match value:
        case None:
            return "none"
        case list() | tuple():
            return " ".join(map(str, value)) or "the default"
        case _:
            return str(value)
