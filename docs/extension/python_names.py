"""The public names of the Python interface: those of `ps_rl.__all__`, each with its first sentence."""

import inspect
import re
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any, get_args

import ps_rl
from docs.extension.attributes import plain, table

CHAPTERS = {
    "To train and play": ps_rl.TO_TRAIN_AND_PLAY,
    "For custom parts": ps_rl.FOR_CUSTOM_PARTS,
    "Errors": ps_rl.ERRORS,
}
WITH_MEMBERS = ("Run", "Policy", "ParameterServerClient", "Algorithm", "ReplayedUpdates", "ReplayMemory")
EMPTY = inspect.Parameter.empty


def names() -> str:
    """A table for each chapter: a name with its arguments, or its fields, and what it is."""
    return "\n".join(
        f"## {title}\n\n{table(('name', 'what it is'), [row for name in places for row in _rows(name)])}"
        for title, places in CHAPTERS.items()
    )


def _rows(name: str) -> Iterator[tuple[str, str]]:
    value = getattr(ps_rl, name)
    if isinstance(value, UnionType):
        yield f"`{name}`", " or ".join(f"`{kind.__name__}`" for kind in get_args(value))
    else:
        yield f"`{name}{_called(value)}`", _first_sentence(value)
    if name in WITH_MEMBERS:
        yield from _members(name, value)


def _members(owner: str, kind: type) -> Iterator[tuple[str, str]]:
    shown_above = () if owner == "Algorithm" else vars(ps_rl.Algorithm)
    for name, value in vars(kind).items():
        if name.startswith("_") or name in shown_above or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield f"`{owner}.{name}`", _first_sentence(value)
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            yield f"`{owner}.{name}{_called(getattr(kind, name))}`", _first_sentence(value)


def _called(value: Any) -> str:
    """The arguments of a call with their defaults; a record's fields without them; nothing of a setting's struct."""
    if fields := getattr(value, "__struct_fields__", None) or tuple(getattr(value, "__dataclass_fields__", ())):
        return f"({', '.join(fields)})" if len(fields) <= 8 else "(…)"
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return ""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown = [
        f"{marks.get(one.kind, '')}{one.name}{'' if one.default is EMPTY else f'={_literal(one.default)}'}"
        for one in parameters
        if one.name != "self"
    ]
    first = next((at for at, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), None)
    if first is not None and parameters[0].name != "self":
        shown.insert(first, "*")
    return f"({', '.join(shown)})"


def _literal(default: Any) -> str:
    return "…" if callable(default) else repr(default)


def _first_sentence(value: Any) -> str:
    if typing.get_origin(value):
        return plain(str(value))
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return plain(re.split(r"(?<=\.) (?=[A-Z`])", text)[0])
