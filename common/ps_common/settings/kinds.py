"""
The kinds of settings, which annotate each setting in run_spec.py: `envs: Annotated[Count, EACH_WORKERS] = 8`.

A kind of a section holds for each of its settings. table.py reads the kinds; every rule about settings asks it.
"""

import difflib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from ps_common.settings.hidden import hidden


class Needs(msgspec.Struct, frozen=True):
    """A condition of the run, without which a setting does nothing."""

    words: str
    holds: Callable[[Any], bool]
    inert: tuple[Any, ...] = ()
    """values of the setting that ask for nothing"""


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of one setting."""

    adjustable: bool = False
    """it changes while the run runs, within the bounds of its type, by `ps-ctl set` and on the page"""
    each_workers: bool = False
    """a worker that joins may have a value of its own"""
    kept: bool = False
    """a resumed run keeps it: weights, optimizer slots and scores were made with it"""
    built_in: bool = False
    """a worker is built with it, and ends when the run comes back with another value"""
    of_a_game: tuple[Any, ...] | None = None
    """it belongs to the game of its run, and fits no other: these values of it, or with () all but the default"""
    needs: Needs | None = None
    """it does nothing unless something else is as it needs"""
    takes: str = ""
    """what it takes, in words, where its type is a pattern"""
    known_to_the_server: bool = False
    """the server acts on it, also as a setting of a custom algorithm"""
    added: str = ""
    """the release that added it; on the wire its default is left out, so that peers of earlier releases read the run"""


def kinds(**given: Any) -> msgspec.Meta:
    """Kinds as an annotation of a setting."""
    Kinds(**given)  # raises for a kind that there is not
    return msgspec.Meta(extra=given)


def needs(words: str, holds: Callable[[Any], bool], *inert: Any) -> msgspec.Meta:
    """The setting does nothing unless this holds for the run; `inert` are the values for which that is no mistake."""
    return kinds(needs=Needs(words, holds, inert))


def of_a_game(*values: Any) -> msgspec.Meta:
    """The setting belongs to the game of its run where it has one of these values; without any, all but the default."""
    return kinds(of_a_game=values)


ADJUSTABLE = kinds(adjustable=True)
EACH_WORKERS = kinds(each_workers=True)
KEPT, CHANGEABLE = kinds(kept=True), kinds(kept=False)
BUILT_IN, ADOPTED = kinds(built_in=True), kinds(built_in=False)
KNOWN_TO_THE_SERVER = kinds(known_to_the_server=True)


def text_of(value: Any) -> str:
    """A value as people read and type it: none, true, 0.000372, 0.1 0.5; a table as JSON, without its secrets."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float() if float(f"{value:g}") == value:
            return f"{value:g}"
        case tuple() | list():
            return " ".join(map(text_of, value)) or "the default"
        case dict():
            return json.dumps(hidden(value))
        case _:
            return str(value)


def value_in(text: str) -> Any:
    """A value as it is typed: true, none, 3, 1e-4; anything else stays a text."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A question, with a space after it, on the name that is nearest to the word; "" where none is near."""
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""


def flag(name: str | None = None, metavar: str | None = None, help: str | None = None) -> Any:
    """The flag of a setting, for tyro. A reader of policies has no tyro, and no flags."""
    try:
        from tyro.conf import arg
    except ImportError:
        return None
    return arg(name=name, metavar=metavar, help=help)


def table_flag(name: str) -> tuple[Any, ...]:
    """The flag of a table, which is typed as JSON."""
    try:
        from tyro.constructors import PrimitiveConstructorSpec
    except ImportError:
        return (None,)
    as_json: Any = PrimitiveConstructorSpec(
        nargs=1,
        metavar='{"NAME": VALUE, ...}',
        instance_from_str=lambda texts: _table_in(texts[0]),
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [json.dumps(value)],
    )
    return as_json, flag(name=name)


def _table_in(text: str) -> dict[str, Any]:
    """The table in a JSON text. Raises ValueError that shows how a table is typed."""
    with suppress(ValueError):
        if isinstance(table := json.loads(text), dict):
            return table
    raise ValueError(f"{text}: is not a table in JSON, which is typed as '{{\"size\": 5}}'")
