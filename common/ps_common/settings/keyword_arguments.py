"""
The keyword arguments of a custom part, `[environment.kwargs]` in TOML: plain values with bounds, since they travel in
the header of messages, and stand in files and on pages.
"""

import json
import keyword
import math
from typing import Any

from ps_common.protocol.names import LONGEST_TEXT, MOST, is_text

KeywordArguments = dict[str, Any]
LONGEST_JSON = 4096  # bytes
DEEPEST = 2  # lists and tables in each other, in one argument
_OWN = "where your part needs it, let MODULE:NAME be a function of yours that passes it on"
GIVEN = {  # arguments of ps-rl itself, and what to do instead
    "num_envs": f"given by ps-rl itself: --envs; {_OWN}",
    "render_mode": f"given by ps-rl itself, as rgb_array when a game is shown or filmed; {_OWN}",
}


def check_arguments(flag: str, arguments: KeywordArguments, *, takes_none: str) -> None:
    """Raises ValueError that begins with the flag of the arguments; `takes_none` names a part without any."""
    if arguments and takes_none:
        raise ValueError(f"{flag}: {takes_none} takes none; remove them")
    for argument, value in arguments.items():
        if not argument.isidentifier() or keyword.iskeyword(argument) or not is_text(argument):
            raise ValueError(f"{flag}: {argument!r} is not a name for an argument")
        if argument in GIVEN:
            raise ValueError(f"{flag}: {argument} is {GIVEN[argument]}")
        if not is_plain(value, depth=DEEPEST):
            raise ValueError(
                f"{flag}: {argument} must be true, false, a finite number, a text of up to {LONGEST_TEXT} characters "
                "of printable ASCII, or lists and tables of these, two deep at most"
            )
    if len(json.dumps(arguments)) > LONGEST_JSON:
        raise ValueError(f"{flag}: are more than {LONGEST_JSON} bytes as JSON; name a file, which the part reads")


def as_lists(value: Any) -> Any:
    """The value with lists in place of tuples, at any depth: messages bring tuples, files lists."""
    match value:
        case dict():
            return {name: as_lists(inner) for name, inner in value.items()}
        case list() | tuple():
            return [as_lists(inner) for inner in value]
        case _:
            return value


def is_plain(value: Any, *, depth: int = 0) -> bool:
    """Whether it can travel: true, false, a number, a text, or lists and tables of these, `depth` in each other."""
    match value:
        case bool():
            return True
        case int():
            return abs(value) <= MOST
        case float():
            return math.isfinite(value)
        case str():
            return is_text(value)
        case list() | tuple():
            return depth > 0 and all(is_plain(inner, depth=depth - 1) for inner in value)
        case dict():
            texts = all(isinstance(name, str) and is_text(name) for name in value)
            return texts and is_plain(list(value.values()), depth=depth)
        case _:
            return False
