"""
Which settings may be changed while a run runs, and to what: the names and ranges that ADJUST, ps-ctl and a page share.

It knows no run: whether a run has the setting, and how far it is, the server checks (ps_server/state/adjustments.py).
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ps_common.errors import SettingsError
from ps_common.protocol.names import as_text

PAUSED, DRAINED, CHECKPOINT_SECONDS = "paused", "drained", "checkpoint_seconds"
LEARNING_RATE = "schedule.learning_rate"
ENTROPY_WEIGHT, FINAL_EPSILON = "algorithm.entropy_weight", "algorithm.final_epsilon"
MAX_STEPS, MAX_MINUTES, UNTIL_RETURN = "budget.max_steps", "budget.max_minutes", "budget.until_return"
# Settings of the run that a running worker takes over. It was built with all others, and ends when they change.
TAKEN_OVER = {
    "algorithm.entropy_weight", "algorithm.entropy_anneal_start", "algorithm.entropy_anneal_steps",
    "algorithm.final_epsilons", "algorithm.epsilon_probabilities",
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A number with two ends, which neither NaN nor infinity passes."""

    least: float
    most: float
    is_whole: bool = False
    may_be_none: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        return f"{kind} from {self.least:g} to {self.most:g}{', or none' if self.may_be_none else ''}"

    def value(self, given: Any) -> int | float | None:
        """The value as the run keeps it. Raises ValueError when it is not allowed."""
        if given is None and self.may_be_none:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float) or not self.least <= given <= self.most:
            raise ValueError
        if self.is_whole and given != math.floor(given):
            raise ValueError
        return int(given) if self.is_whole else float(given)


@dataclass(frozen=True)
class Switch:
    """True or false."""

    def __str__(self) -> str:
        return "true or false"

    def value(self, given: Any) -> bool:
        """Raises ValueError when it is neither."""
        if not isinstance(given, bool):
            raise ValueError
        return given


ADJUSTABLE: Mapping[str, Number | Switch] = {
    LEARNING_RATE: Number(0, 1e12),
    ENTROPY_WEIGHT: Number(0, 1e12),
    FINAL_EPSILON: Number(0, 1),
    MAX_STEPS: Number(0, 2**53 - 1, is_whole=True),
    MAX_MINUTES: Number(0, 1e12),
    UNTIL_RETURN: Number(-1e12, 1e12, may_be_none=True),
    PAUSED: Switch(),
    DRAINED: Switch(),
    CHECKPOINT_SECONDS: Number(0.1, 1e9),
}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a run keeps them. Raises SettingsError that names the first bad one, and what is allowed."""
    return {setting: _checked(setting, value) for setting, value in settings.items()}


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
        settings[setting] = _checked(setting, _read(value.strip()))
    return settings


def shown(value: Any) -> str:
    """A value as people read it: none, true, 0.000372, 0.1 0.5."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case tuple() | list():
            return " ".join(map(shown, value))
        case _:
            return str(value)


def _checked(setting: str, value: Any) -> Any:
    if setting not in ADJUSTABLE:
        near = difflib.get_close_matches(setting, ADJUSTABLE, n=1, cutoff=0.6)
        meant = f"did you mean {near[0]}? There are" if near else "there are"
        raise SettingsError(f"{as_text(setting)}: cannot be adjusted while a run runs; {meant} {_names()}")
    try:
        return ADJUSTABLE[setting].value(value)
    except ValueError:
        told = as_text(str(value), 40)
        raise SettingsError(f"{setting}: {told} is not allowed; it may be {ADJUSTABLE[setting]}") from None


def _full_name(name: str) -> str:
    """ "learning_rate" is schedule.learning_rate: the part after the dot names one setting alone."""
    name = name.replace("-", "_")
    return next((setting for setting in ADJUSTABLE if setting.rpartition(".")[2] == name), name)


def _read(text: str) -> Any:
    """A value as it is typed: true, none, 3, 1e-4; anything else stays a text, which no setting takes."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _names() -> str:
    return ", ".join(ADJUSTABLE)
