"""
Which overrides a run allows: settings that a user typed in addition to a run. The kinds of a setting decide (kinds.py).

A worker that joins may choose what concerns itself alone. A resume may change what applies from then on, and the change
is recorded. The weights, the optimizer's slots and the scores so far were made with the other settings: with another
value they would mean something else, or fit nothing. A preset plays no other game with what belongs to its own. And
settings that have no effect in a run are refused: whoever typed one expects something that will not happen. Overrides
are flat: {"algorithm.unroll_length": 20}.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ps_common.errors import SettingsError
from ps_common.settings.keyword_arguments import as_lists
from ps_common.settings.kinds import text_of
from ps_common.settings.run_settings import flag_of, flat_settings, with_settings
from ps_common.settings.run_spec import RunSpec, Wire
from ps_common.settings.table import kinds_of


def contradiction(run: RunSpec, overrides: Mapping[str, Any], *, adjusted: Collection[str] = ()) -> str:
    """
    One sentence on the first override of a worker that the run does not allow; "" when all agree.

    Settings that were `adjusted` while the run ran contradict nobody.
    """
    settings = flat_settings(run.to_dict())
    for key, value in overrides.items():
        if kinds_of(key).each_workers or key in adjusted:
            continue
        if key not in settings:
            return f"{flag_of(key)} is not a setting of this run ({run.preset}); remove it"
        if _differ(settings[key], value):
            started = f"this run, which was started with {text_of(settings[key])}"
            return f"{flag_of(key)} {text_of(value)} contradicts {started}; remove the flag"
    return ""


def wire_of(run: RunSpec, overrides: Mapping[str, Any]) -> Wire:
    """How the vectors of a worker with these overrides travel."""
    of_the_link = {key: value for key, value in overrides.items() if key.startswith("wire.")}
    return with_settings(run, of_the_link, source="flags").wire


def slow_link(run: RunSpec) -> dict[str, Any]:
    """The overrides of a worker on a slow link. Pulls are fewer only where no worker waits for another."""
    few_pulls = {"wire.pull_every": 2} if run.consistency.rule == "async" else {}
    return {"wire.gradient_codec": "topk", "wire.weight_codec": "delta", **few_pulls}


def resumed_run(run: RunSpec, overrides: Mapping[str, Any]) -> RunSpec:
    """The run with these overrides. Raises SettingsError that names the flag of the first that is not allowed."""
    settings = flat_settings(run.to_dict())
    for key, value in overrides.items():
        flag = f"{flag_of(key)} {text_of(value)}"
        if key not in settings:
            raise SettingsError(f"{flag}: is not a setting of the resumed run ({run.preset}); remove it")
        if kinds_of(key).kept and _differ(settings[key], value):
            why = f"a resumed run keeps {text_of(settings[key])}, with which it was begun"
            raise SettingsError(f"{flag}: {why}; remove the flag, or begin a new run")
    return with_settings(run, overrides, source="flags")


def check_effects(run: RunSpec, overrides: Mapping[str, Any]) -> None:
    """Raises SettingsError if one of the overrides has no effect in the run."""
    for key, value in overrides.items():
        needed = kinds_of(key).needs
        value = tuple(value) if isinstance(value, list) else value
        if needed is not None and value not in needed.inert and not needed.holds(run):
            here = f" with {run.environment.id}" if key.startswith("environment.") else ""
            raise SettingsError(f"{flag_of(key)}: has no effect here{here}, since it needs {needed.words}; remove it")


def _differ(setting: Any, value: Any) -> bool:
    """A list from the wire equals a tuple of the run."""
    return bool(as_lists(setting) != as_lists(value))
