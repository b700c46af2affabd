"""
The documented attributes of a class, as its source has them: names, types, defaults, and the text that stands by each.

The text of an attribute is the string below it, or else the comments of its lines and of those right above it.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ps_common.protocol import messages
from ps_common.protocol.names import Name, Sentence, Text


@dataclass(frozen=True)
class Attribute:
    """One attribute: its type as an object, its default as the source writes it ("" without one), and its text."""

    name: str
    type: Any
    default: str
    text: str


def attributes_of(kind: type) -> Iterator[Attribute]:
    """The attributes of a class and of its bases, those of the class itself first."""
    types = get_type_hints(kind, include_extras=True)
    for owner in kind.__mro__:
        if owner.__module__.startswith(("ps_", "rl_")):
            yield from _own_attributes(owner, types)


def _own_attributes(kind: type, types: dict[str, Any]) -> Iterator[Attribute]:
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    following = [*definition.body[1:], None]
    for node, after in zip(definition.body, following, strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if get_origin(types[node.target.id]) is ClassVar:
                continue
            text = _string(after) or _comment(lines, node)
            default = "" if node.value is None else ast.unparse(node.value)
            yield Attribute(node.target.id, types[node.target.id], default, " ".join(text.split()))


def _string(node: ast.stmt | None) -> str:
    is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return str(node.value.value) if is_string else ""  # type: ignore[union-attr]


def _comment(lines: list[str], node: ast.stmt) -> str:
    first = node.lineno - 1
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    found = [re.search(r"(?:^|\s)# (.*)$", line) for line in lines[first : node.end_lineno]]
    return " ".join(match[1] for match in found if match)


# -- types in words ---------------------------------------------------------------------------------------------------


ALIASES = [
    (messages.Count, "count"), (messages.Sequence, "count from 1"), (messages.Settings, "map of settings"),
    (messages.Run, "run: map of sections"), (Name, "name"), (Text, "text"), (Sentence, "sentence"),
]  # fmt: skip


def in_words(kind: Any) -> str:
    """A type for people: "whole number, 1 to 4,096"."""
    if known := [words for alias, words in ALIASES if alias == kind]:
        return known[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return in_words(arguments[0]) + _bounds(arguments[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        parts = [in_words(part) for part in arguments if part is not NoneType]
        return " or ".join([*parts, "none"] if NoneType in arguments else parts)
    if origin in (tuple, list) and arguments:
        return f"list: {in_words(arguments[0])}"
    if origin is dict:
        return f"map: {in_words(arguments[0])} → {in_words(arguments[1])}"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", bytes: "bytes", Any: "any"}
    return names.get(kind) or f"`{getattr(kind, '__name__', kind)}`".replace("`Path`", "path")


def _bounds(metadata: tuple[Any, ...]) -> str:
    ends = [meta for meta in metadata if isinstance(meta, msgspec.Meta)]
    for meta in ends:
        least = _number(meta.ge) if meta.ge is not None else f"above {_number(meta.gt)}" if meta.gt is not None else ""
        most = _number(meta.le) if meta.le is not None else f"below {_number(meta.lt)}" if meta.lt is not None else ""
        if least and most:
            return f", {least} to {most}"
        if meta.max_length is not None:
            return f", at most {meta.max_length:,} long"
    return ""


def _number(value: Any) -> str:
    if value == 2**53 - 1:
        return "2⁵³ − 1"
    is_short = isinstance(value, int) and abs(value) < 10**6
    return f"{value:,}" if is_short else f"{value:g}".replace("-", "−").replace("e+", "e")


def default_in_words(default: str) -> str:
    """A default as its source writes it, in backticks; "" where there is none."""
    if not default:
        return ""
    plain = {"True": "true", "False": "false", "None": "none", "()": "empty", "''": "empty", "b''": "empty"}
    return plain.get(default) or f"`{default.strip(chr(39))}`"


# -- tables -----------------------------------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def plain(text: str) -> str:
    """A text of the code, with what Markdown would read as its own escaped, except code in backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<>\[\]_])", r"\\\1", part) for part in parts)
