"""
What was typed, before the parser reads it: a first word that is no flag, and values of number flags that are none. A
sentence on it stands in place of the parser's message.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_type_hints

import msgspec

from ps_common.errors import SettingsError
from ps_common.program.number_flags import whole_number
from ps_common.settings import run_files
from ps_common.settings.run_settings import flag_of, flat_settings
from ps_common.settings.run_spec import RunSpec
from ps_common.settings.table import TABLE, allowed

SEE_HELP = "--help says of what"
Numbers = msgspec.inspect.IntType | msgspec.inspect.FloatType


def check_first_word(arguments: Sequence[str]) -> None:
    """Raises SettingsError where a command line begins with the name of a preset, or of an environment, and no flag."""
    word = next(iter(arguments), "-")
    if word.startswith("-"):
        return
    near = difflib.get_close_matches(word, run_files.presets(), n=1, cutoff=0.6)
    is_environment = "/" in word or ":" in word or re.search(r"-v\d+$", word)
    meant = f"--environment {word}" if is_environment else f"--preset {near[0]}" if near else ""
    hint = f"did you mean {meant}?" if meant else "every setting is a flag, which begins with --"
    raise SettingsError(f"{word}: is no flag; {hint}")


def check_values(typed: Mapping[str, Sequence[str]], settings: type[Any], start: RunSpec | None = None) -> None:
    """Raises SettingsError on a number flag of the program, or of a run that starts so, that has no number."""
    hints = get_type_hints(settings, include_extras=True)
    kinds = {f"--{name.replace('_', '-')}": (kind, lambda: SEE_HELP) for name, kind in hints.items()}
    for key in flat_settings(start.to_dict()) if start is not None else ():
        if key in TABLE:
            kinds[flag_of(key)] = (TABLE[key].type, partial(_help_of, key))
    for flag, values in typed.items():
        if flag in kinds and (sentence := _wrong_value(flag, values, *kinds[flag])):
            raise SettingsError(sentence)


def _help_of(setting: str) -> str:
    from ps_common.settings.help_texts import help_texts  # it reads the source

    return help_texts().get(setting, SEE_HELP)


def _wrong_value(flag: str, values: Sequence[str], kind: Any, about: Callable[[], str]) -> str:
    """A sentence, or "". `kind` is the type of the flag; of others than numbers nothing is said. `about`: its help."""
    item, is_many, words = _number_in(kind)
    if item is None:
        return ""
    if not values and not is_many:
        return f"{flag}: needs a value, {allowed(kind)}: {about()}"
    for value in values if is_many else values[:1]:
        if value.lower() in words:
            continue
        try:
            whole_number(value) if isinstance(item, msgspec.inspect.IntType) else float(value)
        except (ValueError, OverflowError):
            if is_many and "," in value:
                return f"{flag} {value}: spaces stand between numbers: {flag} {' '.join(value.split(','))}"
            return f"{flag} {value}: must be {allowed(kind)}"
    return ""


def _number_in(kind: Any) -> tuple[Numbers | None, bool, set[str]]:
    """The type of the number, or of each of several; whether there may be several; and words that may stand for it."""
    try:
        info: Any = msgspec.inspect.type_info(kind)
    except TypeError:  # it is no data
        return None, False, set()
    words: set[str] = set()
    is_many = False
    while not isinstance(info, Numbers):
        match info:
            case msgspec.inspect.Metadata(type=inner):
                info = inner
            case msgspec.inspect.VarTupleType(item_type=inner):
                info, is_many = inner, True
            case msgspec.inspect.UnionType(types=types) if numbers := [one for one in types if _is_number(one)]:
                info = numbers[0]
                words |= {"none"} if any(isinstance(one, msgspec.inspect.NoneType) for one in types) else set()
                words |= {
                    str(word) for one in types if isinstance(one, msgspec.inspect.LiteralType) for word in one.values
                }
            case _:
                return None, False, set()
    return info, is_many, words


def _is_number(info: Any) -> bool:
    inner = info.type if isinstance(info, msgspec.inspect.Metadata) else info
    return isinstance(inner, Numbers)
