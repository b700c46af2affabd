"""
Which settings may be changed while a run runs, and to what: the names and values that ADJUST, ps-ctl and a page share.

They are the settings of kind ADJUSTABLE, with the bounds of their types, and a few that are in no run.toml; and the
numbers and switches of a custom algorithm, by their full names, whose bounds its workers alone know. Whether a run has
a setting, and how far it is, the server checks (ps_server/state/adjustments.py).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import as_text
from ps_common.settings.keyword_arguments import is_plain
from ps_common.settings.kinds import did_you_mean, value_in
from ps_common.settings.run_spec import Fraction
from ps_common.settings.table import TABLE

PAUSED, DRAINED, CHECKPOINT_SECONDS = "paused", "drained", "checkpoint_seconds"
NOT_OF_THE_RUN = (PAUSED, DRAINED, CHECKPOINT_SECONDS)  # the settings that are in no run.toml
LEARNING_RATE = "schedule.learning_rate"
ENTROPY_WEIGHT, FINAL_EPSILON = "algorithm.entropy_weight", "algorithm.final_epsilon"
MAX_STEPS, MAX_MINUTES, UNTIL_RETURN = "budget.max_steps", "budget.max_minutes", "budget.until_return"

ADJUSTABLE: Mapping[str, Any] = {
    **{setting: row.type for setting, row in TABLE.items() if row.kinds.adjustable},
    FINAL_EPSILON: Fraction,  # of all environments, in place of final_epsilons
    PAUSED: bool,
    DRAINED: bool,
    CHECKPOINT_SECONDS: Annotated[float, msgspec.Meta(ge=0.1, le=1e9)],
}


OF_CUSTOM = "algorithm."  # before the names of a custom algorithm's settings


def is_number(value: Any) -> bool:
    """Whether the value of a custom algorithm's setting may be adjusted, as finite numbers, switches and None may."""
    return value is None or (isinstance(value, int | float) and is_plain(value))


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a run keeps them. Raises SettingsError that names the first bad one, and what is allowed."""
    return {setting: _checked(setting, value) for setting, value in settings.items()}


def by_full_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, which may be named without their section, as a run keeps them. Raises SettingsError."""
    return checked({_full_name(name): value for name, value in settings.items()})


def settings_in(texts: Sequence[str]) -> dict[str, Any]:
    """
    Settings as people type them: "learning_rate=1e-4", "paused=true", "budget.until_return=none".

    Raises SettingsError that names the first bad one, and what is allowed.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"{as_text(text)}: must be SETTING=VALUE; settings are {_names()}")
        setting = _full_name(name.strip())
        if setting in settings:
            raise SettingsError(f"{setting}: is given twice")
        settings[setting] = _checked(setting, value_in(value.strip()))
    return settings


def _checked(setting: str, value: Any) -> Any:
    if setting not in ADJUSTABLE and setting.startswith(OF_CUSTOM) and is_number(value):
        return value
    if setting not in ADJUSTABLE:
        meant = did_you_mean(setting, ADJUSTABLE)
        can_be = f"{_names()}, and {OF_CUSTOM}NAME, a number of a custom algorithm, can be"
        raise SettingsError(f"{as_text(setting)}: cannot be adjusted while a run runs; {meant}{can_be}")
    whole = int(value) if isinstance(value, float) and value.is_integer() else value  # 1e6 is a whole number too
    try:
        return msgspec.convert(whole, ADJUSTABLE[setting])
    except msgspec.ValidationError as error:
        problem = str(error)
        raise SettingsError(f"{setting}: {as_text(str(value), 40)}: {problem[:1].lower()}{problem[1:]}") from error


def _full_name(name: str) -> str:
    """ "learning_rate" is schedule.learning_rate: the part after the dot names one setting alone."""
    name = name.replace("-", "_")
    return next((setting for setting in ADJUSTABLE if setting.rpartition(".")[2] == name), name)


def _names() -> str:
    return ", ".join(ADJUSTABLE)
