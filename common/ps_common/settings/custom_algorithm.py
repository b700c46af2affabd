"""
The settings of a custom algorithm, `name = "my_pkg:MyMethod"`, as names and values that nobody here knows.

Server and messages take them as they are: plain values that travel. Only the algorithm's own class knows their types
and defaults (common/rl_agent/algorithms/custom_algorithm.py). Two names mean to the server what they mean everywhere:
`unroll_length` and `target_interval`.
"""

import functools
import keyword
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import LONGEST_TEXT
from ps_common.settings.adjustable import is_number
from ps_common.settings.keyword_arguments import is_plain
from ps_common.settings.run_spec import NONE, CustomAlgorithmSettings
from ps_common.settings.table import TABLE

NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
MOST_SETTINGS = 64
KNOWN_TO_THE_SERVER: dict[str, Any] = {
    name.removeprefix("algorithm."): row.type for name, row in TABLE.items() if row.kinds.known_to_the_server
}


def custom_algorithm(path: str, settings: Mapping[str, Any], *, source: str) -> CustomAlgorithmSettings:
    """The settings of the algorithm at an import path. Raises SettingsError that names the first bad one."""
    unset = settings.get(NONE, ())
    if not isinstance(unset, list | tuple) or not all(isinstance(name, str) for name in unset):
        raise SettingsError(f"{source}: algorithm.{NONE} must be a list of the settings that are None")
    settings = {name: value for name, value in settings.items() if name != NONE} | dict.fromkeys(unset)
    if len(settings) > MOST_SETTINGS:
        raise SettingsError(f"{source}: algorithm {path} has {len(settings)} settings; {MOST_SETTINGS} may travel")
    # A file lists those of None at its end, and equal settings are of one class: their order is that of their names.
    values = {name: _checked(name, settings[name], source) for name in sorted(settings, key=str)}
    fields = tuple((name, _kind(value)) for name, value in values.items())
    made: CustomAlgorithmSettings = _struct(path, fields)(**values)
    return made


def is_adjustable(setting: str, value: Any) -> bool:
    """
    Whether "algorithm.NAME" of a custom algorithm, which has this value, may change while the run runs: numbers and
    switches but those that the server acts on.
    """
    return setting.partition(".")[2] not in KNOWN_TO_THE_SERVER and is_number(value)


@functools.lru_cache(maxsize=256)
def _struct(path: str, fields: tuple[tuple[str, Any], ...]) -> type[CustomAlgorithmSettings]:
    """One class for each set of names and types, so that equal settings are equal."""
    made: Any = msgspec.defstruct("CustomAlgorithm", fields, bases=(CustomAlgorithmSettings,), kw_only=True, tag=path)
    return made  # type: ignore[no-any-return]


def _checked(name: str, value: Any, source: str) -> Any:
    if not isinstance(name, str) or NAME.fullmatch(name) is None or keyword.iskeyword(name):
        use = "use lower case letters, digits and _"
        raise SettingsError(f"{source}: algorithm.{name} is not a name for a setting: {use}")
    if name in KNOWN_TO_THE_SERVER:
        try:
            return msgspec.convert(value, KNOWN_TO_THE_SERVER[name])
        except msgspec.ValidationError as error:
            raise SettingsError(f"{source}: {error} for algorithm.{name}") from error
    value = tuple(value) if isinstance(value, list) else value
    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and not is_plain(one):
            raise SettingsError(
                f"{source}: algorithm.{name} must be true, false, a finite number, a text of up to {LONGEST_TEXT} "
                "characters of printable ASCII, or a list of these"
            )
    return value


def _kind(value: Any) -> Any:
    """The type of a setting as a flag, from its value alone."""
    match value:
        case bool():
            return bool
        case int() | float():
            return int | float
        case str():
            return str
        case tuple() if all(isinstance(one, str) for one in value):
            return tuple[str, ...]
        case tuple() if all(isinstance(one, int | float) for one in value):
            return tuple[int | float, ...]
        case tuple():
            return tuple[int | float | str, ...]
        case _:
            return int | float | str | None
