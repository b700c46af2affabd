"""
Which overrides a run allows: settings that a user typed beside a run that exists already.

A worker that joins may choose what concerns itself alone. A resume may change what applies from then on, and the change
is recorded. The weights, the optimizer's slots and the scores so far were made with the other settings: with another
value they would mean something else, or fit nothing. Overrides are flat: {"algorithm.unroll_length": 20}.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ps_common.errors import SettingsError
from ps_common.settings.run_settings import flag_of, flat_settings, typed, with_settings
from ps_common.settings.run_spec import RunSpec, Wire

# How a worker's vectors travel depends on its own link.
OF_THE_LINK = {"wire.gradient_codec", "wire.weight_codec", "wire.prefetch", "wire.pull_every"}
CHOSEN_BY_EACH_WORKER = {"environment.envs", "seed", *OF_THE_LINK}
KEPT_BY_A_RESUME = {"preset", "seed", "algorithm.name", "algorithm.reward_normalization", "optimizer.name"}
SECTIONS_KEPT_BY_A_RESUME = {"environment", "network"}
CHANGED_BY_A_RESUME = {"environment.envs"}  # of these sections


def contradiction(run: RunSpec, overrides: Mapping[str, Any], *, adjusted: Collection[str] = ()) -> str:
    """
    One sentence on the first override of a worker that the run does not allow; "" when all agree.

    Settings that were `adjusted` while the run ran contradict nobody.
    """
    settings = flat_settings(run.to_dict())
    for key, value in overrides.items():
        if key in CHOSEN_BY_EACH_WORKER or key in adjusted:
            continue
        if key not in settings:
            return f"{flag_of(key)} is not a setting of this run ({run.preset}); leave it out"
        if _differ(settings[key], value):
            started = f"this run, which was started with {typed(settings[key])}"
            return f"{flag_of(key)} {typed(value)} contradicts {started}; leave the flag out"
    return ""


def wire_of(run: RunSpec, overrides: Mapping[str, Any]) -> Wire:
    """How the vectors of a worker with these overrides travel."""
    return with_settings(run, {key: overrides[key] for key in OF_THE_LINK & set(overrides)}, source="flags").wire


def resumed_run(run: RunSpec, overrides: Mapping[str, Any]) -> RunSpec:
    """The run with these overrides. Raises SettingsError that names the flag of the first that is not allowed."""
    settings = flat_settings(run.to_dict())
    for key, value in overrides.items():
        flag = f"{flag_of(key)} {typed(value)}"
        if key not in settings:
            raise SettingsError(f"{flag}: is not a setting of the resumed run ({run.preset}); leave it out")
        if _is_kept(key) and _differ(settings[key], value):
            why = f"a resumed run keeps {typed(settings[key])}, with which it was begun"
            raise SettingsError(f"{flag}: {why}; leave the flag out, or begin a new run")
    return with_settings(run, overrides, source="flags")


def _is_kept(key: str) -> bool:
    in_kept_section = key.partition(".")[0] in SECTIONS_KEPT_BY_A_RESUME and key not in CHANGED_BY_A_RESUME
    return key in KEPT_BY_A_RESUME or in_kept_section


def _differ(setting: Any, value: Any) -> bool:
    """A list from the wire equals a tuple of the run."""
    return (list(setting) if isinstance(setting, tuple) else setting) != (
        list(value) if isinstance(value, tuple) else value
    )
